//! The commands and their answers.

use crate::numbers::{
    CLIENT, EINVAL, ENODATA, ENODEV, ENOENT, EOPNOTSUPP, NLM_F_ACK, NLM_F_DUMP, NLM_F_MULTI,
    NLM_F_REQUEST, NLMSG_MIN_TYPE, attr, command,
};
use crate::objects::{COUNTERS, KINDS, Kind, Objects};
use crate::reply::Reply;
use crate::request::{Message, next};
use crate::table::{Device, Table};

/// Every device has one port.
const PORT: u32 = 1;
/// `RDMA_NODE_IB_CA`.
const NODE_TYPE: u8 = 1;
/// `IB_PORT_ACTIVE` and `IB_PORT_PHYS_STATE_LINK_UP`, as in the files of sysfs.
const UP: (u8, u8) = (4, 5);
/// `IB_PORT_DOWN` and `IB_PORT_PHYS_STATE_DISABLED`.
const DOWN: (u8, u8) = (1, 3);
/// The device number of `/dev/null` (1, 3), which stands in for each device file.
const STAND_IN: u64 = 0x103;
/// Interface version of verbs: of a device with its own library.
const UVERBS_ABI: u64 = 1;
/// Interface version of the connection manager: of Linux.
const UCMA_ABI: u64 = 4;

/// A change of the devices, as `rdma link add` and `rdma link delete` ask for it. The bytes are
/// those of the request, unchecked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkChange<'a> {
    /// A new device on an interface.
    Add {
        /// The name of the device.
        name: &'a [u8],
        /// The driver: `rxe`, `siw`.
        driver: &'a [u8],
        /// The interface.
        interface: &'a [u8],
    },
    /// The device with this name goes.
    Delete {
        /// The name of the device.
        name: &'a [u8],
    },
}

/// Answers all requests of a datagram from the socket with this port. `send` gets each datagram of
/// the answer, with at most [`DATAGRAM`](crate::DATAGRAM) bytes. `change` changes the devices, and
/// returns 0 or an errno.
///
/// If a request cannot be answered, the reply has the errno of Linux: EINVAL for a device or port
/// that is missing or not named, ENOENT for an object, EOPNOTSUPP for another command that would
/// change something, ENODATA for a question about objects or counters without `objects`.
pub fn answer(
    table: &Table<'_>,
    objects: Option<&Objects<'_>>,
    port: u32,
    mut datagram: &[u8],
    change: &mut dyn FnMut(LinkChange<'_>) -> i32,
    send: &mut dyn FnMut(&[u8]),
) {
    let mut reply = Reply::new(port, send);
    while let Some(message) = next(&mut datagram) {
        let asked = Asked { table, objects, message: &message };
        if message.flags & NLM_F_REQUEST != 0 && message.kind >= NLMSG_MIN_TYPE {
            if let Err(error) = asked.answer(change, &mut reply) {
                reply.result(&message, error);
            } else if message.flags & NLM_F_ACK != 0 && !asked.is_dump() {
                reply.result(&message, 0);
            }
        } else if message.flags & NLM_F_ACK != 0 {
            reply.result(&message, 0);
        }
    }
    reply.flush();
}

/// Does an answer to this datagram need the objects of the processes?
#[must_use]
pub fn needs_objects(mut datagram: &[u8]) -> bool {
    while let Some(message) = next(&mut datagram) {
        let what = message.command();
        let counts = what == command::STAT_GET && !message.has(attr::STAT_RES);
        let needs = Kind::of(what).is_some() || counts || what == command::RES_GET;
        if message.kind >> 10 == CLIENT && needs {
            return true;
        }
    }
    false
}

type Said = Result<(), i32>;

fn done(errno: i32) -> Said {
    if errno == 0 { Ok(()) } else { Err(errno) }
}

/// Fills in the attributes for a device.
type Fill<'a> = &'a dyn Fn(&mut Reply<'_>, &Device<'_>);

/// A request, with all that an answer may tell.
struct Asked<'a> {
    table: &'a Table<'a>,
    objects: Option<&'a Objects<'a>>,
    message: &'a Message<'a>,
}

impl<'a> Asked<'a> {
    fn answer(&self, change: &mut dyn FnMut(LinkChange<'_>) -> i32, reply: &mut Reply<'_>) -> Said {
        let message = self.message;
        if message.kind >> 10 != CLIENT {
            return Err(EINVAL);
        }
        let what = message.command();
        if let Some(kind) = Kind::of(what) {
            return self.list(reply, kind);
        }
        match what {
            command::GET => self.each(reply, &device),
            command::RES_GET => {
                let objects = self.objects()?;
                self.each(reply, &|reply, device| summary(objects, reply, device))
            }
            command::PORT_GET if self.is_dump() => self.dump_of_one(reply, Some(&port)),
            command::PORT_GET => self.of_port(reply, &port),
            command::SYS_GET => {
                reply.message(message, message.kind, 0, |reply| {
                    // Devices are shared among all network namespaces that a process can see. The
                    // child of a fork has the registered memory of its parent.
                    reply.u8(attr::SYS_NETNS_MODE, 1);
                    reply.u8(attr::SYS_COPY_ON_FORK, 1);
                });
                Ok(())
            }
            command::GET_CHARDEV => self.chardev(reply),
            command::STAT_GET => self.statistics(reply),
            // No counter is optional.
            command::STAT_GET_STATUS => self.of_port(reply, &|reply, _| {
                reply.u32(attr::PORT_INDEX, PORT);
                reply.nested(attr::STAT_HWCOUNTERS, |_| {});
            }),
            command::NEWLINK => {
                let text = |kind| message.string(kind).ok_or(EINVAL);
                let (name, interface) = (text(attr::DEV_NAME)?, text(attr::NDEV_NAME)?);
                done(change(LinkChange::Add { name, driver: text(attr::LINK_TYPE)?, interface }))
            }
            command::DELLINK => done(change(LinkChange::Delete { name: self.named()?.name })),
            // The ids of rdma_cm are known to their process alone.
            command::RES_CM_ID_GET
            | command::SET
            | command::SYS_SET
            | command::STAT_SET
            | command::STAT_DEL => Err(EOPNOTSUPP),
            _ => Err(EINVAL),
        }
    }

    /// Whether the message is a dump, for the commands of this client that support dumps.
    fn is_dump(&self) -> bool {
        use command::{GET, PORT_GET, RES_CM_ID_GET, RES_GET, STAT_GET};
        let what = self.message.command();
        let can = matches!(what, GET | PORT_GET | RES_GET | RES_CM_ID_GET | STAT_GET);
        (can || Kind::of(what).is_some()) && self.message.flags & NLM_F_DUMP != 0
    }

    fn objects(&self) -> Result<&'a Objects<'a>, i32> {
        self.objects.ok_or(ENODATA)
    }

    fn named(&self) -> Result<Device<'a>, i32> {
        let index = self.message.u32(attr::DEV_INDEX).ok_or(EINVAL)?;
        self.table.find(index).ok_or(EINVAL)
    }

    fn with_port(&self) -> Result<Device<'a>, i32> {
        let device = self.named()?;
        (self.message.u32(attr::PORT_INDEX) == Some(PORT)).then_some(device).ok_or(EINVAL)
    }

    fn say(&self, reply: &mut Reply<'_>, device: &Device<'_>, flags: u16, fill: Fill<'_>) {
        reply.message(self.message, self.message.kind, flags, |reply| {
            reply.u32(attr::DEV_INDEX, device.index);
            reply.string(attr::DEV_NAME, device.name);
            fill(reply, device);
        });
    }

    /// Answers for all devices, or for the named device.
    fn each(&self, reply: &mut Reply<'_>, fill: Fill<'_>) -> Said {
        if self.is_dump() {
            self.table.devices().for_each(|d| self.say(reply, &d, NLM_F_MULTI, fill));
            reply.done(self.message, NLM_F_MULTI);
        } else {
            self.say(reply, &self.named()?, 0, fill);
        }
        Ok(())
    }

    /// Answers for the named port.
    fn of_port(&self, reply: &mut Reply<'_>, fill: Fill<'_>) -> Said {
        self.say(reply, &self.with_port()?, 0, fill);
        Ok(())
    }

    /// A dump about one device.
    fn dump_of_one(&self, reply: &mut Reply<'_>, fill: Option<Fill<'_>>) -> Said {
        let device = self.named()?;
        if let Some(fill) = fill {
            self.say(reply, &device, NLM_F_MULTI, fill);
        }
        reply.done(self.message, NLM_F_MULTI);
        Ok(())
    }

    /// The objects of a kind of one device, or the object with a number.
    fn list(&self, reply: &mut Reply<'_>, kind: &Kind) -> Said {
        let device = self.named()?;
        let all = self.objects()?.objects(device.name, kind);
        if !self.is_dump() {
            let number = self.message.u32(kind.number).ok_or(EINVAL)?;
            let (pid, object) = { all }.find(|(_, one)| one.number() == number).ok_or(ENOENT)?;
            self.say(reply, &device, 0, &|reply, _| object.tell(pid, reply));
            return Ok(());
        }
        for (pid, object) in all {
            self.say(reply, &device, NLM_F_MULTI, &|reply, _| {
                reply.nested(kind.list, |reply| {
                    // In the kernel's numbers, an entry follows its list.
                    reply.nested(kind.list.wrapping_add(1), |reply| object.tell(pid, reply));
                });
            });
        }
        reply.done(self.message, NLM_F_MULTI);
        Ok(())
    }

    fn statistics(&self, reply: &mut Reply<'_>) -> Said {
        let message = self.message;
        let of = message.u32(attr::STAT_RES);
        let (qp, mr) = (Some(u32::from(attr::RES_QP)), Some(u32::from(attr::RES_MR)));
        if self.is_dump() {
            return if of == qp || of == mr { self.dump_of_one(reply, None) } else { Err(EINVAL) };
        }
        match of {
            None => {
                let objects = self.with_port().and(self.objects())?;
                self.of_port(reply, &|reply, device| counters(objects, reply, device))
            }
            of if of == qp && message.has(attr::STAT_MODE) => self.of_port(reply, &|reply, _| {
                reply.u32(attr::PORT_INDEX, PORT);
                // `RDMA_COUNTER_MODE_NONE`.
                reply.u32(attr::STAT_MODE, 0);
            }),
            of if of == qp && message.has(attr::STAT_COUNTER_ID) => {
                self.with_port().and(Err(ENOENT))
            }
            of if of == mr && message.has(attr::RES_MRN) => self.named().and(Err(ENOENT)),
            _ => Err(EINVAL),
        }
    }

    fn chardev(&self, reply: &mut Reply<'_>) -> Said {
        let kind = self.message.string(attr::CHARDEV_TYPE).ok_or(EINVAL)?;
        let device = match self.message.u32(attr::DEV_INDEX) {
            Some(_) => Some(self.named()?),
            None => None,
        };
        let abi = match (kind, device) {
            (b"uverbs", Some(_)) => UVERBS_ABI,
            (b"rdma_cm", None) => UCMA_ABI,
            _ => return Err(ENODEV),
        };
        reply.message(self.message, self.message.kind, 0, |reply| {
            if let Some(device) = device {
                reply.u32(attr::DEV_INDEX, device.index);
            }
            reply.u64(attr::CHARDEV, STAND_IN);
            reply.u64(attr::CHARDEV_ABI, abi);
            match device {
                Some(device) => {
                    let mut name = *b"uverbs\0\0\0\0\0\0\0\0\0\0";
                    let len = 6 + decimal(device.index, name.iter_mut().skip(6));
                    reply.string(attr::CHARDEV_NAME, name.get(..len).unwrap_or_default());
                }
                None => reply.string(attr::CHARDEV_NAME, b"rdma_cm"),
            }
        });
        Ok(())
    }
}

fn device(reply: &mut Reply<'_>, device: &Device<'_>) {
    reply.u32(attr::PORT_INDEX, PORT);
    reply.u64(attr::CAP_FLAGS, device.caps);
    reply.string(attr::FW_VERSION, device.firmware);
    reply.u64(attr::NODE_GUID, device.guid);
    reply.u64(attr::SYS_IMAGE_GUID, device.guid);
    reply.u8(attr::DEV_NODE_TYPE, NODE_TYPE);
    reply.string(attr::DEV_PROTOCOL, b"roce");
}

fn port(reply: &mut Reply<'_>, device: &Device<'_>) {
    reply.u32(attr::PORT_INDEX, PORT);
    let (state, physical) = if device.up { UP } else { DOWN };
    reply.u8(attr::PORT_STATE, state);
    reply.u8(attr::PORT_PHYS_STATE, physical);
    reply.u32(attr::NDEV_INDEX, device.net_index);
    reply.string(attr::NDEV_NAME, device.net_name);
}

fn summary(objects: &Objects<'_>, reply: &mut Reply<'_>, device: &Device<'_>) {
    reply.nested(attr::RES_SUMMARY, |reply| {
        for kind in &KINDS {
            reply.nested(attr::RES_SUMMARY_ENTRY, |reply| {
                let count = objects.objects(device.name, kind).count() as u64;
                reply.string(attr::RES_SUMMARY_ENTRY_NAME, kind.word.as_bytes());
                reply.u64(attr::RES_SUMMARY_ENTRY_CURR, count);
            });
        }
    });
}

fn counters(objects: &Objects<'_>, reply: &mut Reply<'_>, device: &Device<'_>) {
    reply.u32(attr::PORT_INDEX, PORT);
    reply.nested(attr::STAT_HWCOUNTERS, |reply| {
        for (name, value) in COUNTERS.iter().zip(objects.counters(device.name)) {
            reply.nested(attr::STAT_HWCOUNTER_ENTRY, |reply| {
                reply.string(attr::STAT_HWCOUNTER_ENTRY_NAME, name.as_bytes());
                reply.u64(attr::STAT_HWCOUNTER_ENTRY_VALUE, value);
            });
        }
    });
}

/// Writes a number in decimal digits, and returns the number of digits.
fn decimal<'a>(number: u32, to: impl Iterator<Item = &'a mut u8>) -> usize {
    let mut digits = [0_u8; 10];
    let (mut left, mut used) = (number, 0_usize);
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        (left, used) = (left / 10, used + 1);
        if left == 0 {
            break;
        }
    }
    let first = digits.len().saturating_sub(used);
    for (to, digit) in to.zip(digits.iter().skip(first)) {
        *to = *digit;
    }
    used
}
