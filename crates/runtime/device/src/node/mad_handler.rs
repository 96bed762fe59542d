//! Who handles the MADs of queue pair 1.
use adverb_cm::Path;
use adverb_engine::Time;

/// Bytes of a MAD.
pub const MAD_LEN: usize = adverb_cm::MAD_LEN;

/// A MAD that came.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// `local` is the address that it was sent to, `remote` the one it came from.
    pub path: Path,
    /// Index of the interface, of link-local addresses only; else 0.
    pub scope_id: u32,
    /// Its bytes.
    pub mad: &'a [u8; MAD_LEN],
}

/// What a connection manager gives the device.
///
/// The calls come on the node's background thread, and on threads of the program that wait in
/// `MadDoor::wait`, with no lock of the device held: a handler may take its own locks and call
/// whatever the device offers, but must not wait for what only that thread does. No call comes from
/// within another call of the program. MADs come one at a time, in their order; news of interfaces
/// may come beside them. Each call answers when [`MadHandler::timeout`] shall be called next
/// (`None`: as before).
pub trait MadHandler: Send + Sync {
    /// A MAD of the connection manager for this process.
    fn mad(&self, now: Time, mad: &Arrival<'_>) -> Option<Time>;
    /// A deadline named before has come. It may have been put off since: then there is nothing to
    /// do.
    fn timeout(&self, now: Time) -> Option<Time>;
    /// The process of this host has ended whose communication ids have this prefix.
    fn peer_gone(&self, now: Time, prefix: u32) -> Option<Time>;
    /// Interfaces of this machine, or their addresses, have changed.
    fn interfaces_changed(&self, now: Time) -> Option<Time> {
        let _ = now;
        None
    }
}
