//! The carrier of raw packet queue pairs. Ethernet frames go from send requests to the port of an
//! interface, and from the port into receives.
mod carrier;
mod kept;

pub(crate) use carrier::Ethernet;
pub(crate) use kept::KeptFrames;
