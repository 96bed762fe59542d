//! Which devices this process has (`ADVERB_DEVICES`).
//!
//! By default there is one device, [`HOST_DEVICE`], for all interfaces that lead out and for
//! loopback. docs/design/devices.md explains this choice.
use crate::interfaces::Interface;
use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// The variable with the selection.
pub const VARIABLE: &str = "ADVERB_DEVICES";
/// The name of the device for all interfaces that lead out, and for loopback.
pub const HOST_DEVICE: &str = "adverb0";

/// A selection of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// The device [`HOST_DEVICE`].
    #[default]
    Host,
    /// A device for each interface with an address.
    All,
    /// A device for each of these interfaces.
    Interfaces(Vec<String>),
}

impl FromStr for Selection {
    type Err = Infallible;

    /// `all`, or names of interfaces with commas between them. Empty: the usual device.
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let names: Vec<String> =
            text.split(',').map(str::trim).filter(|n| !n.is_empty()).map(Into::into).collect();
        Ok(match &names[..] {
            [] => Selection::Host,
            [all] if all == "all" => Selection::All,
            _ => Selection::Interfaces(names),
        })
    }
}

impl fmt::Display for Selection {
    /// The text that gives the selection again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selection::Host => Ok(()),
            Selection::All => f.write_str("all"),
            Selection::Interfaces(names) => f.write_str(&names.join(",")),
        }
    }
}

impl Selection {
    /// The complaint about names of the selection that no interface has.
    #[must_use]
    pub fn complaint(&self, interfaces: &[Interface]) -> Option<String> {
        let Selection::Interfaces(names) = self else { return None };
        let is_there = |name: &String| interfaces.iter().any(|i| i.name == *name);
        let missing: Vec<&str> = names.iter().filter(|n| !is_there(n)).map(|n| &**n).collect();
        let there: Vec<&str> = interfaces.iter().map(|i| &*i.name).collect();
        (!missing.is_empty()).then(|| {
            format!("there is no interface {}; there are: {}", missing.join(", "), there.join(", "))
        })
    }
}

static SELECTION: OnceLock<Selection> = OnceLock::new();

/// Makes the selection of this process, in place of the variable. A later call changes nothing.
pub fn select(selection: Selection) {
    let _ = SELECTION.set(selection);
}

/// The selection of this process: the argument of [`select`], or else the variable.
pub fn selection() -> &'static Selection {
    SELECTION.get_or_init(|| {
        let text = std::env::var(VARIABLE).unwrap_or_default();
        text.parse().unwrap_or_default()
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sys_12_names_and_words() {
        let of = |text: &str| text.parse::<Selection>().unwrap();
        assert_eq!(of(" "), Selection::Host);
        assert_eq!(of("all"), Selection::All);
        assert_eq!(of("lo, eth0,"), Selection::Interfaces(vec!["lo".into(), "eth0".into()]));
        for text in ["", "all", "lo,eth0"] {
            assert_eq!(of(text).to_string(), text);
        }
        let real = crate::interfaces::all().unwrap();
        assert_eq!(of("lo").complaint(&real), None);
        assert_eq!(of("all").complaint(&real), None);
        let said = of("lo,none0").complaint(&real).unwrap();
        assert!(said.starts_with("there is no interface none0; there are: "), "{said}");
    }
}
