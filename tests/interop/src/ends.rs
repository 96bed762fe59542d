//! The two ends of the wire: programs under `adverb run` on the host's side of the tap, and
//! soft-RoCE on the other side.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use adverb_foreign::device::{Device, DeviceArgs, parse_devinfo};
use adverb_foreign::process::Program;

use crate::vm;

/// The side of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// `adverb run`, on the host.
    Adverb,
    /// `rxe0`, in the virtual machine.
    Rxe,
}

/// The address family of the GIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// GIDs `::ffff:10.77.0.x`.
    V4,
    /// GIDs `fd77::x`.
    V6,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Adverb => "adverb",
            Side::Rxe => "rxe",
        })
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

impl Side {
    /// The address of the end, as set by `scripts/vm/vm`.
    pub fn address(self, family: Family) -> &'static str {
        match (self, family) {
            (Side::Adverb, Family::V4) => "10.77.0.1",
            (Side::Adverb, Family::V6) => "fd77::1",
            (Side::Rxe, Family::V4) => "10.77.0.2",
            (Side::Rxe, Family::V6) => "fd77::2",
        }
    }

    /// A program of both ends.
    pub fn program<S: AsRef<str>>(self, name: &str, args: &[S]) -> Program {
        match self {
            Side::Adverb => Program::new(name, args),
            Side::Rxe => vm::program(name, args),
        }
    }

    fn devices(self) -> Result<&'static [Device], String> {
        static ADVERB: OnceLock<Result<Vec<Device>, String>> = OnceLock::new();
        static RXE: OnceLock<Result<Vec<Device>, String>> = OnceLock::new();
        let known = if self == Side::Adverb { &ADVERB } else { &RXE };
        let found = known.get_or_init(|| {
            let out = self.program("ibv_devinfo", &["-v"]).run_ok(Duration::from_secs(60))?;
            parse_devinfo(&out.text)
        });
        found.as_deref().map_err(Clone::clone)
    }

    /// The device with the GID of the end's address.
    ///
    /// # Errors
    /// No device has this GID.
    pub fn place(self, family: Family) -> Result<DeviceArgs, String> {
        let address: IpAddr = self.address(family).parse().map_err(|e| format!("{self}: {e}"))?;
        let gid = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        DeviceArgs::with_gid(self.devices()?, gid)
            .ok_or_else(|| format!("{self}: no device has the RoCE v2 GID {gid}"))
    }

    /// Makes a program of the host available at the end, and returns its name there.
    ///
    /// # Errors
    /// The program cannot be copied.
    pub fn install(self, program: &Path) -> Result<String, String> {
        match self {
            Side::Adverb => Ok(program.to_string_lossy().into_owned()),
            Side::Rxe => {
                let name = program.file_name().unwrap_or_default().to_string_lossy();
                let to = format!("/usr/bin/{name}");
                vm::put(program, &to)?;
                Ok(to)
            }
        }
    }
}
