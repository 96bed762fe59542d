//! Which devices this process has (`ADVERB_DEVICES`).
//!
//! By default there is one device, [`HOST_DEVICE`], for all interfaces that lead out and for
//! loopback. docs/design/devices.md explains this choice.
use crate::interfaces::Interface;
use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;

/// The variable with the selection.
pub const VARIABLE: &str = "ADVERB_DEVICES";
/// The variable with the path of a link. `rdma link add` makes the link, to a directory with the
/// devices of the run.
pub const LINKS: &str = "ADVERB_LINKS";
/// A file of this directory: the selection.
pub const SELECTION_FILE: &str = "selection";
/// The name of the device for all interfaces that lead out, and for loopback.
pub const HOST_DEVICE: &str = "adverb0";
/// The name of the device of one interface begins with this prefix, if the selection names no
/// other.
pub(crate) const PREFIX: &str = "adverb_";
/// A device of each interface.
const ALL: &str = "all";
/// Most bytes of a device's name: `IB_DEVICE_NAME_MAX` without the zero.
const NAME_MAX: usize = 63;

/// A selection of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// The device [`HOST_DEVICE`].
    #[default]
    Host,
    /// These devices.
    Items(Vec<Item>),
}

/// An item of a selection: `NAME@PLACE`, or one word. The word `all` stands for a device for each
/// interface with an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The name of the device. Without a place, an interface, or the name of a device for all
    /// interfaces.
    pub name: String,
    /// An interface, or an address of an interface.
    pub place: Option<String>,
}

impl FromStr for Item {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.split_once('@') {
            Some((name, place)) => Item { name: name.into(), place: Some(place.into()) },
            None => Item { name: text.into(), place: None },
        })
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.place.as_ref().map_or(Ok(()), |place| write!(f, "@{place}"))
    }
}

impl FromStr for Selection {
    type Err = Infallible;

    /// Items with commas between them. Empty: the usual device. A comma alone: no device.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let items = text.split(',').map(str::trim).filter(|n| !n.is_empty());
        let items = items.map(str::parse).collect::<Result<Vec<Item>, _>>()?;
        Ok(match &items[..] {
            [] if text.trim().is_empty() => Selection::Host,
            _ => Selection::Items(items),
        })
    }
}

impl fmt::Display for Selection {
    /// The text that gives the selection again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selection::Host => Ok(()),
            Selection::Items(items) if items.is_empty() => f.write_str(","),
            Selection::Items(items) => {
                let items: Vec<String> = items.iter().map(ToString::to_string).collect();
                f.write_str(&items.join(","))
            }
        }
    }
}

/// A device of a selection, on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub name: String,
    /// The interface. `None`: all interfaces that lead out, and loopback.
    pub interface: Option<u32>,
    /// The only address of the device.
    pub address: Option<IpAddr>,
    /// Does the selection give the device a name of its own?
    pub has_own_name: bool,
}

impl Selection {
    /// The selection of several options.
    #[must_use]
    pub fn joined(parts: &[Selection]) -> Option<Selection> {
        let texts: Vec<String> = parts.iter().map(ToString::to_string).collect();
        (!parts.is_empty()).then(|| texts.join(",").parse().unwrap_or_default())
    }

    /// The selection with another item at its end.
    #[must_use]
    pub fn with(&self, item: Item) -> Selection {
        let mut items = match self {
            Selection::Host => vec![Item { name: HOST_DEVICE.into(), place: None }],
            Selection::Items(items) => items.clone(),
        };
        items.push(item);
        Selection::Items(items)
    }

    /// The selection without the item `NAME@PLACE` of this name. `None` without such an item.
    #[must_use]
    pub fn without(&self, name: &str) -> Option<Selection> {
        let Selection::Items(items) = self else { return None };
        let at = items.iter().position(|item| item.name == name && item.place.is_some())?;
        let mut items = items.clone();
        items.remove(at);
        Some(Selection::Items(items))
    }

    /// The complaint about items of the selection that give no device.
    #[must_use]
    pub fn complaint(&self, interfaces: &[Interface]) -> Option<String> {
        let complaints = self.chosen(interfaces).1;
        (!complaints.is_empty()).then(|| complaints.join("; "))
    }

    /// The devices of the items, and complaints about other items.
    pub(crate) fn chosen(&self, interfaces: &[Interface]) -> (Vec<Chosen>, Vec<String>) {
        let Selection::Items(items) = self else { return (Vec::new(), Vec::new()) };
        let (mut devices, mut complaints) = (Vec::<Chosen>::new(), Vec::new());
        for item in items {
            let found = match on(item, interfaces) {
                Ok(found) => found,
                Err(complaint) => {
                    complaints.push(complaint);
                    continue;
                }
            };
            for device in found {
                if devices.iter().any(|known| known.name == device.name) {
                    let name = device.name;
                    complaints
                        .push(format!("two devices are named {name}: give each a name of its own"));
                } else {
                    devices.push(device);
                }
            }
        }
        (devices, complaints)
    }

    /// The addresses of items that no interface has: addresses of 127.0.0.0/8, which the kernel
    /// gives to loopback without a list.
    pub(crate) fn unlisted_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let items = match self {
            Selection::Items(items) => &items[..],
            _ => &[],
        };
        let address = |item: &Item| item.place.as_ref()?.parse().ok();
        items.iter().filter_map(address).filter(|ip: &IpAddr| ip.is_ipv4() && ip.is_loopback())
    }
}

/// The device of one interface, with the usual name.
fn usual(interface: &Interface) -> Chosen {
    let (name, interface) = (format!("{PREFIX}{}", interface.name), Some(interface.index));
    Chosen { name, interface, address: None, has_own_name: false }
}

/// The devices of an item.
fn on(item: &Item, interfaces: &[Interface]) -> Result<Vec<Chosen>, String> {
    let name = &item.name;
    let there = || {
        let names: Vec<&str> = interfaces.iter().map(|i| &*i.name).collect();
        names.join(", ")
    };
    let Some(place) = &item.place else {
        if name == ALL {
            // Indices of devices stay when an interface goes up or down.
            let mut all: Vec<_> = interfaces.iter().filter(|i| !i.addresses.is_empty()).collect();
            all.sort_by_key(|i| (i.loopback, i.index));
            return Ok(all.into_iter().map(usual).collect());
        }
        if let Some(interface) = interfaces.iter().find(|i| i.name == *name) {
            return Ok(vec![usual(interface)]);
        }
        check_name(name)?;
        let has_own_name = name != HOST_DEVICE;
        let name = name.clone();
        return Ok(vec![Chosen { name, interface: None, address: None, has_own_name }]);
    };
    check_name(name)?;
    let (interface, address) = match place.parse::<IpAddr>() {
        Ok(ip) => {
            let found = interfaces.iter().find(|i| i.has(&ip)).ok_or_else(|| {
                format!(
                    "{item}: no interface has the address {ip}: choose an address from `ip address`, \
                     or on this host alone any 127.x.y.z"
                )
            })?;
            (found.index, Some(ip))
        }
        Err(_) => {
            let found = interfaces.iter().find(|i| i.name == *place).ok_or_else(|| {
                format!("{item}: there is no interface {place}; there are: {}", there())
            })?;
            (found.index, None)
        }
    };
    let name = name.clone();
    Ok(vec![Chosen { name, interface: Some(interface), address, has_own_name: true }])
}

/// Can `/sys/class/infiniband` have a device of this name, and a list of devices hold it?
fn check_name(name: &str) -> Result<(), String> {
    let possible = |b: u8| b.is_ascii_graphic() && !b"/,@%".contains(&b);
    if name.is_empty()
        || name.len() > NAME_MAX
        || !name.bytes().all(possible)
        || name.starts_with('.')
    {
        return Err(format!(
            "{name:?} cannot name a device: a name has 1 to {NAME_MAX} ASCII characters, no space \
             and none of / , @ %, and does not begin with a dot, for example rxe0"
        ));
    }
    Ok(())
}

static SELECTION: OnceLock<Selection> = OnceLock::new();

/// Makes the selection of this process, in place of the variable. A later call changes nothing.
pub fn select(selection: Selection) {
    let _ = SELECTION.set(selection);
}

/// The selection of this process: the argument of [`select`], or the selection of `rdma link add`,
/// or else the variable.
pub fn selection() -> &'static Selection {
    SELECTION.get_or_init(|| {
        let link = adverb_os::chosen(LINKS).map(PathBuf::from);
        let changed = link.and_then(|link| std::fs::read_to_string(link.join(SELECTION_FILE)).ok());
        let text = changed.or_else(|| std::env::var(VARIABLE).ok()).unwrap_or_default();
        text.parse().unwrap_or_default()
    })
}

#[cfg(all(test, not(loom)))]
mod tests;
