//! Outages on request (`link-down=`, `device-fatal=`, `adverb fault`): the link of a device is down
//! for a time, or the device fails.
//!
//! The times count from the first open of the device in this process, on the node's clock. The
//! background thread begins and ends an outage. [`Outages::of`](super::Outages::of) changes
//! first, and then each queue pair. So a queue pair that is made meanwhile finds the outage there.
//!
//! # Order of events
//!
//! A link without a carrier raises PORT_ERR, and PORT_ACTIVE when the carrier is back. The
//! addresses stay, so no GID_CHANGE comes. Linux does the same:
//! - soft-RoCE: `rxe_notify` (`drivers/infiniband/sw/rxe/rxe_net.c`) answers a change of the
//!   carrier with `rxe_port_down` and `rxe_port_up`.
//! - mlx5: `mlx5_netdev_event` (`drivers/infiniband/hw/mlx5/main.c`) raises `IB_EVENT_PORT_ERR` and
//!   `IB_EVENT_PORT_ACTIVE`.
//! - The GID table follows addresses, and not the carrier (`roce_gid_mgmt.c`).
//!
//! A device that fails raises DEVICE_FATAL, as `mlx5_ib_handle_sys_error_event` does. Before, the
//! completion queues of queue pairs with open requests get an event, armed or not
//! (`mlx5_ib_handle_internal_error`). Afterwards calls that make, change or read an object fail
//! with EIO, and calls that destroy succeed (`mlx5_internal_err_ret_value` in the driver's
//! `cmd.c`). No request completes.
use crate::error::Error;
use crate::faults::{Outage, OutageKind, Spec, SpecError};
use crate::interfaces::gid_of;
use crate::node::carriers::ring;
use crate::node::core::Node;
use crate::node::ports::DeviceScope;
use crate::node::queue_pair::AnyQp;
use crate::node::timers::{NEVER, Timed};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

impl Node {
    /// The outages that were asked for at the start. Answered once, for a check of their names.
    pub(crate) fn take_unchecked_outages(&self) -> Vec<Outage> {
        let mut known = self.outages.known.lock();
        if std::mem::replace(&mut known.checked, true) {
            return Vec::new();
        }
        known.entries.iter().map(|entry| entry.asked.clone()).collect()
    }

    /// A device was opened. The time of its outages begins with the first open.
    pub(crate) fn opened(&self, device: &str, scope: DeviceScope) {
        let now = self.now();
        for (index, after) in self.outages.opened(device, scope) {
            self.enter_deadline_of_thread(now + after, Timed::Outage(index), NEVER);
        }
    }

    /// EIO if the device has failed on request.
    pub(crate) fn check_device(&self, device: &str) -> Result<(), Error> {
        match self.outages.of(device) {
            Some(OutageKind::DeviceFatal) => Err(Error::injected(Errno::EIO)),
            _ => Ok(()),
        }
    }

    /// Is the device with this address behind a link that is down? Then MADs are lost.
    pub(crate) fn is_cut_off(&self, ip: IpAddr) -> bool {
        if !self.outages.any.load(Ordering::SeqCst) {
            return false;
        }
        let has = |scope: DeviceScope| {
            let table = self.ports.table(scope).unwrap_or_default();
            table.iter().any(|entry| entry.gid == gid_of(&ip))
        };
        let devices = self.ports.devices();
        let mut here = devices.iter().filter(|(_, scope)| has(**scope)).peekable();
        here.peek().is_some() && here.all(|(name, _)| self.outages.of(name).is_some())
    }

    /// Carries out what `adverb fault` asks for. Answers the reason if this is not possible.
    pub(in crate::node) fn take_fault(&self, text: &str) -> Result<(), String> {
        let spec: Spec = text.parse().map_err(|e: SpecError| e.to_string())?;
        let Spec { link_down, device_fatal, .. } = spec.clone();
        if (Spec { link_down, device_fatal, ..Spec::default() }) != spec {
            return Err("only link-down and device-fatal are possible in a running program".into());
        }
        let open = self.ports.devices();
        let names: Vec<_> = open.keys().map(String::as_str).collect();
        let asked = spec.outages();
        if let Some(o) = asked.iter().find(|o| !open.contains_key(&o.device)) {
            let names = if names.is_empty() { "no device is".into() } else { names.join(", ") };
            return Err(format!("the program has not opened {}; open: {names}", o.device));
        }
        log::warn!("faults are injected: {spec}");
        self.outages.known.lock().add(asked);
        open.iter().for_each(|(name, scope)| self.opened(name, *scope));
        Ok(())
    }

    /// An outage begins or ends. Only called by the background thread, without a lock.
    pub(in crate::node) fn outage_due(&self, index: usize) {
        let Some((asked, scope, begins)) = self.outages.change(index) else { return };
        let Outage { device, kind, lasts, .. } = asked;
        log::warn!("injected: {}", text(&device, kind, begins));
        if let Some(lasts) = lasts.filter(|_| begins) {
            self.enter_deadline_of_thread(self.now() + lasts, Timed::Outage(index), NEVER);
        }
        let mut queues = BTreeMap::new();
        for qp in self.registry.qps.from(0).iter().filter(|qp| qp.own.device() == device) {
            if self.cut(qp) {
                queues.extend(qp.own.queues().into_iter().flatten().map(|cq| (cq.number(), cq)));
            }
        }
        match kind {
            OutageKind::LinkDown => self.ports.set_link(scope, begins).unwrap_or_else(|e| {
                log::info!("the network interfaces cannot be listed: {e}");
            }),
            OutageKind::DeviceFatal => {
                queues.into_values().for_each(|cq| cq.announce());
                self.ports.fail(scope);
            }
        }
        self.ports.tell();
    }

    /// A queue pair follows the outage of its device. `true`: the queue pair has open requests.
    pub(in crate::node) fn cut(&self, qp: &AnyQp) -> bool {
        self.with_tx(|tx| {
            let mut inner = qp.inner.lock();
            inner.outage = self.outages.of(qp.own.device());
            // Peers on this host perform no request at the queue pair meanwhile.
            ring::publish(self, qp, &mut inner);
            self.pump(qp, &mut inner, tx);
            let engine = &inner.engine;
            let free = engine.free_sends() + engine.staged_sends();
            free < engine.config().cap.max_send_wr as usize || engine.receives_waiting(None) > 0
        })
    }
}

fn text(device: &str, kind: OutageKind, begins: bool) -> String {
    match (kind, begins) {
        (OutageKind::LinkDown, true) => format!("the link of {device} is down"),
        (OutageKind::LinkDown, false) => format!("the link of {device} is up again"),
        (OutageKind::DeviceFatal, _) => format!("{device} fails for good"),
    }
}
