//! What happens when a link goes down on request, or is up again ([`link_down`](super::link_down)).
use super::carriers::Rings;
use super::core::Node;
use super::ports::DeviceScope;
use super::timers::{NEVER, Timed};
use crate::faults::LinkDown;
use adverb_engine::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

impl Node {
    /// A device was opened. The time of its faults begins with the first open.
    pub(crate) fn opened(&self, device: &str, scope: DeviceScope) {
        for (index, link) in self.down_links.iter().enumerate() {
            if link.asked.device == device && link.scope.set(scope).is_ok() {
                self.enter_timer(self.now() + link.asked.after, Timed::Link(index), NEVER);
            }
        }
    }

    /// Set while the link of this device is down. `None`: the link never goes down on request.
    pub(super) fn down_link(&self, device: &str) -> Option<Arc<AtomicBool>> {
        self.down_links.iter().find(|l| l.asked.device == device).map(|l| l.down.clone())
    }

    /// A link goes down, or is up again. No lock is held.
    pub(super) fn link_due(&self, index: usize, now: Time) {
        let Some(link) = self.down_links.get(index) else { return };
        let Some(scope) = link.scope.get() else { return };
        let down = !link.down.fetch_not(Ordering::SeqCst);
        let LinkDown { device, lasts, .. } = &link.asked;
        log::warn!("injected: the link of {device} is {}", if down { "down" } else { "up again" });
        if let Err(e) = self.ports.set_link(*scope, down) {
            log::info!("the network interfaces cannot be listed: {e}");
        }
        if let Some(lasts) = lasts.filter(|_| down) {
            self.enter_timer(now + lasts, Timed::Link(index), NEVER);
        }
        // Peers on this host perform no request at a queue pair behind the link.
        let mut all = Vec::new();
        self.registry.qps.for_each(|qp| all.extend(self.qp(qp.number())));
        for qp in all.iter().filter(|qp| qp.own.device() == device) {
            self.with_tx(|tx| {
                let mut inner = qp.inner.lock();
                if let Some(rings) = Rings::of(self) {
                    rings.publish(qp, &mut inner);
                }
                self.pump(qp, &mut inner, tx);
            });
        }
        self.wake_thread();
    }
}
