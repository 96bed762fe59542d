//! An interface for raw packet queue pairs of this process.
use crate::error::Error;
use crate::node::{AnyQp, FramePort, Wire};
use crate::objects::context::Context;
use crate::ranks;
use adverb_local::{FramePort as LinkPort, LocalError, MAX_FRAME, RawFrame};
use adverb_steering::{Frame, HEADER, Heard, Table};
use adverb_sync::RankedRw;
use nix::errno::Errno;
use std::any::Any;
use std::sync::{Arc, Weak};

/// Bytes of a VLAN tag.
const TAG: usize = 4;

/// An interface with raw packet queue pairs.
#[derive(Debug)]
pub(crate) struct Port {
    context: Arc<Context>,
    interface: u32,
    mac: [u8; 6],
    /// Frames go directly from process to process, and otherwise through a packet socket.
    loopback: bool,
    link: LinkPort,
    pub(super) rules: RankedRw<Table<Weak<AnyQp>>, ranks::Flows>,
}

impl Port {
    /// The port of a context's device.
    ///
    /// # Errors
    /// EPERM if the process may not open packet sockets; other errors of the kernel.
    pub(crate) fn of(context: &Arc<Context>) -> Result<Arc<Port>, Error> {
        let node = context.node();
        let interface = context.device().interface();
        let mut ports = node.frame_ports.lock();
        if let Some(port) = ports.get(&interface.index).and_then(Weak::upgrade) {
            let port: Arc<dyn Any + Send + Sync> = port;
            if let Ok(port) = port.downcast() {
                return Ok(port);
            }
        }
        let link = node.link();
        let opened = match interface.loopback {
            true => link.share_frames(interface.index),
            false => link.open_frames(interface.index),
        };
        let port = Arc::new(Port {
            context: context.clone(),
            interface: interface.index,
            mac: interface.mac,
            loopback: interface.loopback,
            link: opened.map_err(|e| refusal(context, e))?,
            rules: RankedRw::default(),
        });
        ports.retain(|_, port| port.strong_count() > 0);
        let entry: Weak<Port> = Arc::downgrade(&port);
        ports.insert(interface.index, entry);
        Ok(port)
    }

    /// Bytes of the longest frame that a device sends, including a VLAN tag.
    pub(crate) fn longest(context: &Context) -> u32 {
        (context.device().interface().mtu + HEADER + TAG).min(MAX_FRAME) as u32
    }

    /// Does this station receive a frame that leaves the station?
    fn comes_back(&self, frame: &Frame) -> bool {
        frame.is_to_group() || frame.dst == self.mac
    }
}

impl FramePort for Port {
    fn send(&self, link: &Wire, frames: Vec<Vec<u8>>) -> bool {
        let takers = if self.loopback { link.frame_takers(self.interface) } else { Vec::new() };
        let mut looped = false;
        for bytes in frames {
            takers.iter().for_each(|slot| link.tell_frame(*slot, self.interface, &bytes));
            if !self.loopback
                && let Err(e) = link.send_frame(&self.link, &bytes)
            {
                log::debug!("a frame of {} bytes did not leave: {e}", bytes.len());
            }
            let Some(frame) = Frame::parse(&bytes) else { continue };
            let leaving = !self.loopback && !self.comes_back(&frame);
            let heard = if leaving { Heard::Leaving } else { Heard::Arrived };
            if self.rules.read().choose(&frame, heard).next().is_some() {
                link.keep_frame(RawFrame { interface: self.interface, leaving, bytes });
                looped = true;
            }
        }
        looped
    }

    fn takers(&self, raw: &RawFrame) -> Vec<Arc<AnyQp>> {
        let Some(frame) = Frame::parse(&raw.bytes) else { return Vec::new() };
        let heard =
            if raw.leaving && !self.comes_back(&frame) { Heard::Leaving } else { Heard::Arrived };
        let rules = self.rules.read();
        let chosen = rules.choose(&frame, heard).filter_map(Weak::upgrade);
        let mut takers: Vec<Arc<AnyQp>> = Vec::new();
        for qp in chosen {
            let qp = qp.own.spread(&frame).unwrap_or(qp);
            // Each queue pair gets a single copy, even if several flows match.
            if !takers.iter().any(|taker| Arc::ptr_eq(taker, &qp)) {
                takers.push(qp);
            }
        }
        takers
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let node = self.context.node();
        if !node.is_stale() {
            node.link().close_frames(&self.link);
        }
    }
}

/// Explains why raw packet queue pairs are not possible, and what helps.
fn refusal(context: &Context, e: LocalError) -> Error {
    let e = Error::from(e);
    if ![Errno::EPERM, Errno::EACCES].map(|errno| errno as i32).contains(&e.errno()) {
        return e;
    }
    let name = context.device().name();
    let text = format!(
        "raw packet queue pairs of {name} need packet sockets (AF_PACKET), and this process lacks \
         CAP_NET_RAW: run the program as root, by `setpriv --inh-caps +net_raw --ambient-caps \
         +net_raw`, or in a container with NET_RAW; loopback alone (`adverb run --device lo`) \
         needs no right"
    );
    log::warn!("{text}");
    Error::new(Errno::EPERM, text)
}
