//! The handler of the MADs of queue pair 1.
use adverb_cm::Path;
use adverb_engine::Time;

/// Bytes of a MAD.
pub const MAD_LEN: usize = adverb_cm::MAD_LEN;

/// An arrived MAD.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// `local` is the destination address of the MAD, `remote` the source address.
    pub path: Path,
    /// Index of the interface, for link-local addresses only. Otherwise 0.
    pub scope_id: u32,
    /// The bytes of the MAD.
    pub mad: &'a [u8; MAD_LEN],
}

/// The calls of the device to a connection manager.
///
/// The calls come on the node's background thread, and on threads of the program in
/// `MadInterface::wait`. No lock of the device is held. A handler may take its own locks and call
/// every function of the device, but must not wait for work of the calling thread. A call never
/// comes from within another call of the program. MADs come one at a time, in their order. News of
/// interfaces may come concurrently. Each call returns the time of the next call of
/// [`MadHandler::timeout`]. `None`: the time is unchanged.
pub trait MadHandler: Send + Sync {
    /// A MAD of the connection manager for this process.
    fn mad(&self, now: Time, mad: &Arrival<'_>) -> Option<Time>;
    /// An earlier returned deadline has come. If the deadline has been put off since, there is
    /// nothing to do.
    fn timeout(&self, now: Time) -> Option<Time>;
    /// The process of this host with this prefix in its communication ids has ended.
    fn peer_ended(&self, now: Time, prefix: u32) -> Option<Time>;
    /// Interfaces of this machine, or their addresses, have changed.
    fn interfaces_changed(&self, now: Time) -> Option<Time> {
        let _ = now;
        None
    }
    /// Does the program wait for the answer to a MAD? A handler at work may say `true`. The call
    /// comes from any thread, and does not wait.
    fn awaits_answer(&self) -> bool {
        false
    }
}
