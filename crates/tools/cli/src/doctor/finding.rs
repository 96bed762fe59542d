//! Findings of the doctor.
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Ok,
    Warn,
    Fail,
}

impl State {
    pub fn word(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Warn => "warn",
            State::Fail => "FAIL",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A short, stable name.
    pub what: &'static str,
    pub state: State,
    pub found: String,
    /// The remedy, if something is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    pub fn ok(what: &'static str, found: impl Into<String>) -> Finding {
        Finding { what, state: State::Ok, found: found.into(), remedy: None }
    }

    pub fn warn(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Finding { state: State::Warn, remedy: Some(remedy.into()), ..Finding::ok(what, found) }
    }

    pub fn fail(what: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Finding { state: State::Fail, ..Finding::warn(what, found, remedy) }
    }

    /// A warning with this remedy, unless all is well.
    pub fn unless(self, is_well: bool, remedy: impl Into<String>) -> Self {
        if is_well { self } else { Finding::warn(self.what, self.found, remedy) }
    }
}

/// A number of bytes in a suitable unit.
pub fn bytes(n: u64) -> String {
    match n {
        0..0x400 => format!("{n} bytes"),
        0x400..0x10_0000 => format!("{} KiB", n >> 10),
        0x10_0000..0x4000_0000 => format!("{} MiB", n >> 20),
        _ => format!("{} GiB", n >> 30),
    }
}
