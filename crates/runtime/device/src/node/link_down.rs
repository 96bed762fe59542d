//! Links that go down on request (`link-down=`): the port of a device is down for a time, and the
//! device neither sends nor takes a packet.
//!
//! The times count from the first open of the device in this process, on the node's clock.
//!
//! # Order of events
//!
//! The events are those of an interface that loses its carrier, and come from the same place
//! ([`Ports`](super::ports::Ports)): PORT_ERR when the link goes down, PORT_ACTIVE when the link is
//! up again. The addresses stay, so no GID_CHANGE comes. Linux does the same: soft-RoCE raises
//! `IB_EVENT_PORT_ERR` in `rxe_port_down` and `IB_EVENT_PORT_ACTIVE` in `rxe_port_up`
//! (`drivers/infiniband/sw/rxe/rxe_net.c`). The GID table follows addresses, not the carrier
//! (`drivers/infiniband/core/roce_gid_mgmt.c`).
use super::ports::DeviceScope;
use crate::faults::LinkDown;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// A link that goes down on request.
#[derive(Debug)]
pub(super) struct DownLink {
    pub(super) asked: LinkDown,
    /// The device, once it was opened.
    pub(super) scope: OnceLock<DeviceScope>,
    /// The queue pairs of the device look here.
    pub(super) down: Arc<AtomicBool>,
}

impl DownLink {
    pub(super) fn new(asked: LinkDown) -> Self {
        DownLink { asked, scope: OnceLock::new(), down: Arc::default() }
    }
}
