//! The objects and counters of the user's processes, as text. A process writes its lines with the
//! `Display` of [`ObjectLine`]. The collector puts the process id in front of each line, and
//! [`Objects::END`] after the last line.

use core::fmt;

use crate::numbers::{attr, command};
use crate::reply::Reply;
use crate::table::number;

/// The counters of a device. Where soft-RoCE of Linux counts the same, the name is the name there;
/// `local_ack_timeout_err` is a name of mlx5.
pub const COUNTERS: [&str; 10] = [
    "sent_pkts",
    "rcvd_pkts",
    "duplicate_request",
    "out_of_seq_request",
    "rcvd_rnr_err",
    "send_rnr_err",
    "rcvd_seq_err",
    "local_ack_timeout_err",
    "dropped_pkts",
    // Requests between processes of one host that need no packet.
    "one_sided_requests",
];

/// The values of the counters, in the order of [`COUNTERS`].
pub type Counts = [u64; COUNTERS.len()];

/// An object of a device. Numbers are unique in a process; the number of a queue pair is unique
/// among the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have the names of the attributes")]
pub enum Object {
    Context {
        number: u32,
    },
    Pd {
        number: u32,
        context: u32,
        users: u64,
    },
    Cq {
        number: u32,
        context: u32,
        capacity: u32,
        users: u64,
    },
    /// `kind`: `enum ib_srq_type`.
    Srq {
        number: u32,
        pd: u32,
        kind: u8,
    },
    Mr {
        number: u32,
        pd: u32,
        len: u64,
    },
    /// `kind`: `enum ib_qp_type`. `state`: `enum ib_qp_state`. `dest`: 0 without a peer.
    Qp {
        number: u32,
        pd: u32,
        kind: u8,
        state: u8,
        dest: u32,
        rq_psn: u32,
        sq_psn: u32,
    },
}

/// A kind of objects: its word in the lines and in summaries, the command that lists the objects,
/// the attribute of the list, and the attribute of an object's number.
pub(crate) struct Kind {
    pub word: &'static str,
    pub get: u16,
    pub list: u16,
    pub number: u16,
}

impl Kind {
    /// The kind of objects that this command lists.
    pub fn of(get: u16) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| kind.get == get)
    }
}

const fn kind(word: &'static str, get: u16, list: u16, number: u16) -> Kind {
    Kind { word, get, list, number }
}

/// All kinds, in the kernel's order of a summary.
pub(crate) const KINDS: [Kind; 6] = [
    kind("pd", command::RES_PD_GET, attr::RES_PD, attr::RES_PDN),
    kind("cq", command::RES_CQ_GET, attr::RES_CQ, attr::RES_CQN),
    kind("qp", command::RES_QP_GET, attr::RES_QP, attr::RES_LQPN),
    kind("mr", command::RES_MR_GET, attr::RES_MR, attr::RES_MRN),
    kind("ctx", command::RES_CTX_GET, attr::RES_CTX, attr::RES_CTXN),
    kind("srq", command::RES_SRQ_GET, attr::RES_SRQ, attr::RES_SRQN),
];

impl Object {
    /// The word of the kind, and the fields.
    fn fields(&self) -> (&'static str, [u64; 7], usize) {
        let fill = |word, fields: &[u64]| {
            let mut all = [0; 7];
            all.iter_mut().zip(fields).for_each(|(to, from)| *to = *from);
            (word, all, fields.len())
        };
        match *self {
            Object::Context { number } => fill("ctx", &[number.into()]),
            Object::Pd { number, context, users } => {
                fill("pd", &[number.into(), context.into(), users])
            }
            Object::Cq { number, context, capacity, users } => {
                fill("cq", &[number.into(), context.into(), capacity.into(), users])
            }
            Object::Srq { number, pd, kind } => {
                fill("srq", &[number.into(), pd.into(), kind.into()])
            }
            Object::Mr { number, pd, len } => fill("mr", &[number.into(), pd.into(), len]),
            Object::Qp { number, pd, kind, state, dest, rq_psn, sq_psn } => fill(
                "qp",
                &[
                    number.into(),
                    pd.into(),
                    kind.into(),
                    state.into(),
                    dest.into(),
                    rq_psn.into(),
                    sq_psn.into(),
                ],
            ),
        }
    }

    fn parse<'a>(word: &[u8], fields: &mut impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut long = || number(fields.next()?, 10);
        let mut next = || u32::try_from(long()?).ok();
        let short = |value: u32| u8::try_from(value).ok();
        let number = next()?;
        Some(match word {
            b"ctx" => Object::Context { number },
            b"pd" => Object::Pd { number, context: next()?, users: long()? },
            b"cq" => Object::Cq { number, context: next()?, capacity: next()?, users: long()? },
            b"srq" => Object::Srq { number, pd: next()?, kind: short(next()?)? },
            b"mr" => Object::Mr { number, pd: next()?, len: long()? },
            b"qp" => Object::Qp {
                number,
                pd: next()?,
                kind: short(next()?)?,
                state: short(next()?)?,
                dest: next()?,
                rq_psn: next()?,
                sq_psn: next()?,
            },
            _ => return None,
        })
    }

    /// Is the object of this kind?
    pub(crate) fn is(&self, kind: &Kind) -> bool {
        self.fields().0 == kind.word
    }

    pub(crate) fn number(&self) -> u32 {
        let (_, [number, ..], _) = self.fields();
        number as u32
    }

    /// Adds the attributes of the object.
    pub(crate) fn tell(&self, pid: u32, reply: &mut Reply<'_>) {
        match *self {
            Object::Context { number } => reply.u32(attr::RES_CTXN, number),
            Object::Pd { number, context, users } => {
                reply.u64(attr::RES_USECNT, users);
                reply.u32(attr::RES_PDN, number);
                reply.u32(attr::RES_CTXN, context);
            }
            Object::Cq { number, context, capacity, users } => {
                reply.u32(attr::RES_CQE, capacity);
                reply.u64(attr::RES_USECNT, users);
                reply.u32(attr::RES_CQN, number);
                reply.u32(attr::RES_CTXN, context);
            }
            Object::Srq { number, pd, kind } => {
                reply.u32(attr::RES_SRQN, number);
                reply.u8(attr::RES_TYPE, kind);
                reply.u32(attr::RES_PDN, pd);
            }
            Object::Mr { number, pd, len } => {
                reply.u64(attr::RES_MRLEN, len);
                reply.u32(attr::RES_MRN, number);
                reply.u32(attr::RES_PDN, pd);
            }
            Object::Qp { number, pd, kind, state, dest, rq_psn, sq_psn } => {
                reply.u32(attr::RES_LQPN, number);
                if dest != 0 {
                    reply.u32(attr::RES_RQPN, dest);
                    reply.u32(attr::RES_RQ_PSN, rq_psn);
                }
                reply.u32(attr::RES_SQ_PSN, sq_psn);
                reply.u8(attr::RES_TYPE, kind);
                reply.u8(attr::RES_STATE, state);
                reply.u32(attr::RES_PDN, pd);
            }
        }
        reply.u32(attr::RES_PID, pid);
    }
}

/// An object of a device, or the counters of a process on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectLine {
    /// An object.
    Object(Object),
    /// The counters.
    Counters(Counts),
}

/// The line of a process: the entry, without the device and the newline.
impl fmt::Display for ObjectLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut say = |word: &str, fields: &[u64]| {
            f.write_str(word)?;
            fields.iter().try_for_each(|field| write!(f, " {field}"))
        };
        match self {
            ObjectLine::Counters(values) => say("counters", values),
            ObjectLine::Object(object) => {
                let (word, fields, used) = object.fields();
                say(word, fields.get(..used).unwrap_or_default())
            }
        }
    }
}

impl ObjectLine {
    fn parse<'a>(word: &[u8], fields: &mut impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        if word != b"counters" {
            return Object::parse(word, fields).map(ObjectLine::Object);
        }
        let mut values = Counts::default();
        for value in &mut values {
            *value = number(fields.next()?, 10)?;
        }
        Some(ObjectLine::Counters(values))
    }
}

/// A line: the process id, the device, and the entry.
fn line(text: &[u8]) -> Option<(u32, &[u8], ObjectLine)> {
    let mut fields = text.split(|b| *b == b' ');
    let pid = number(fields.next()?, 10)?.try_into().ok()?;
    let device = fields.next()?;
    let entry = ObjectLine::parse(fields.next()?, &mut fields)?;
    fields.next().is_none().then_some((pid, device, entry))
}

/// The question for the text of [`Objects`], from the preloaded object to the survivor of a run.
/// The messages about connections begin with other bytes.
pub const QUESTION: &[u8; 4] = b"objs";

/// The entries of all processes of the user.
#[derive(Clone, Copy, Debug)]
pub struct Objects<'a>(&'a [u8]);

impl<'a> Objects<'a> {
    /// The last line of a complete text.
    pub const END: &'static str = "end\n";

    /// Reads a text. `None`: the text is cut, or has another line.
    #[must_use]
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let text = text.strip_suffix(Self::END.as_bytes())?;
        let mut lines = text.split(|b| *b == b'\n').filter(|text| !text.is_empty());
        lines.all(|text| line(text).is_some()).then_some(Self(text))
    }

    /// The entries of a device, each with its process.
    fn of<'d>(&self, device: &'d [u8]) -> impl Iterator<Item = (u32, ObjectLine)> + use<'a, 'd> {
        let lines = self.0.split(|b| *b == b'\n').filter_map(line);
        lines.filter(move |(_, of, _)| *of == device).map(|(pid, _, entry)| (pid, entry))
    }

    /// The objects of a kind, each with its process.
    pub(crate) fn objects<'d>(
        &self,
        device: &'d [u8],
        kind: &'d Kind,
    ) -> impl Iterator<Item = (u32, Object)> + use<'a, 'd> {
        self.of(device).filter_map(|(pid, entry)| match entry {
            ObjectLine::Object(object) if object.is(kind) => Some((pid, object)),
            _ => None,
        })
    }

    /// The sums of the counters of a device over the processes.
    #[must_use]
    pub fn counters(&self, device: &[u8]) -> Counts {
        let mut sums = Counts::default();
        for (_, entry) in self.of(device) {
            if let ObjectLine::Counters(values) = entry {
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.wrapping_add(value));
            }
        }
        sums
    }
}
