//! The devices, as text with one line per device. `adverb run` writes the text, and the preloaded
//! object reads it.

use core::fmt;

/// A device with a single port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device<'a> {
    /// Device index as in the kernel, from 0.
    pub index: u32,
    /// Name without white space; this applies to all names here.
    pub name: &'a [u8],
    /// Node and system image GUID, in host order.
    pub guid: u64,
    /// `device_cap_flags`.
    pub caps: u64,
    /// Firmware version.
    pub firmware: &'a [u8],
    /// Index of the network interface.
    pub net_index: u32,
    /// Name of the network interface.
    pub net_name: &'a [u8],
    /// The port is active.
    pub up: bool,
}

impl<'a> Device<'a> {
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|b| *b == b' ').filter(|f| !f.is_empty());
        let device = Self {
            index: number(fields.next()?, 10)?.try_into().ok()?,
            name: fields.next()?,
            guid: number(fields.next()?, 16)?,
            caps: number(fields.next()?, 16)?,
            firmware: fields.next()?,
            net_index: number(fields.next()?, 10)?.try_into().ok()?,
            net_name: fields.next()?,
            up: match fields.next()? {
                b"up" => true,
                b"down" => false,
                _ => return None,
            },
        };
        let short = [device.name, device.firmware, device.net_name].iter().all(|f| f.len() <= NAME);
        (short && fields.next().is_none()).then_some(device)
    }
}

/// Largest length of a name in bytes; the kernel's limit is lower.
const NAME: usize = 64;

/// The line of a table, without the newline.
impl fmt::Display for Device<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |f: &mut fmt::Formatter<'_>, bytes: &[u8]| {
            bytes.utf8_chunks().try_for_each(|chunk| f.write_str(chunk.valid()))
        };
        write!(f, "{} ", self.index)?;
        text(f, self.name)?;
        write!(f, " {:x} {:x} ", self.guid, self.caps)?;
        text(f, self.firmware)?;
        write!(f, " {} ", self.net_index)?;
        text(f, self.net_name)?;
        f.write_str(if self.up { " up" } else { " down" })
    }
}

/// Parses a number that consists of digits only.
pub(crate) fn number(text: &[u8], base: u32) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, digit| {
        // `char::to_digit` can panic.
        let digit = match digit {
            b'0'..=b'9' => digit.wrapping_sub(b'0'),
            b'a'..=b'f' => digit.wrapping_sub(b'a' - 10),
            _ => return None,
        };
        let digit = Some(u32::from(digit)).filter(|digit| *digit < base)?;
        sum.checked_mul(base.into())?.checked_add(digit.into())
    })
}

/// Number of an invalid line; lines count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLine(pub usize);

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the table of devices is no device", self.0)
    }
}

impl core::error::Error for BadLine {}

/// The devices that a request can refer to.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a>(&'a [u8]);

impl<'a> Table<'a> {
    /// Parses a table: one line per device, in the form of its `Display`.
    ///
    /// # Errors
    /// The first invalid line. Empty lines are ignored.
    pub fn parse(text: &'a [u8]) -> Result<Self, BadLine> {
        let mut line = 0;
        for text in text.split(|b| *b == b'\n') {
            line += 1;
            if !text.is_empty() && Device::parse(text).is_none() {
                return Err(BadLine(line));
            }
        }
        Ok(Self(text))
    }

    /// The devices, in the order of the text.
    pub fn devices(&self) -> impl Iterator<Item = Device<'a>> + use<'a> {
        self.0.split(|b| *b == b'\n').filter_map(Device::parse)
    }

    /// The device with this index.
    pub(crate) fn find(&self, index: u32) -> Option<Device<'a>> {
        self.devices().find(|d| d.index == index)
    }
}
