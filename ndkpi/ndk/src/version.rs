//! Versions of NDKPI.

/// A version of NDKPI, with which an adapter is opened. Each version includes the earlier versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Version {
    /// 1.2, of Windows Server 2012 R2.
    #[default]
    V1_2,
    /// 2.0, of Windows Server 2016.
    V2_0,
    /// 2.1, of Windows Server 2022: reasons of failed requests and of disconnects.
    V2_1,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Version; 3] = [Version::V1_2, Version::V2_0, Version::V2_1];

    /// Major and minor number.
    #[must_use]
    pub const fn numbers(self) -> (u16, u16) {
        match self {
            Version::V1_2 => (1, 2),
            Version::V2_0 => (2, 0),
            Version::V2_1 => (2, 1),
        }
    }

    /// The version with these numbers, if it exists.
    #[must_use]
    pub fn of(major: u16, minor: u16) -> Option<Version> {
        Version::ALL.into_iter().find(|v| v.numbers() == (major, minor))
    }
}
