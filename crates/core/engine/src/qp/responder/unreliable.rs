//! UC and UD (IBTA 9.8): there are no answers. A message that cannot be taken is dropped, and its
//! receive serves the next message.
use super::messages::Refusal;
use super::reliable::{Class, check_length, check_sequence};
use super::state::Responder;
use crate::cause::Cause;
use crate::completion::{WcOpcode, WcStatus};
use crate::effects::Unfit;
use crate::memory::Memory;
use crate::packet::Packet;
use crate::qp::context::QpCtx;
use crate::qp::verdict::Verdict;
use crate::qp::{Counters, DropReason, Env, RecvSource};
use adverb_wire::{GRH_LEN, Grh, ICRC_LEN, Ipv4InGrh, NakCode, Operation};

/// Length of the UDP header.
const UDP_LEN: usize = 8;
/// Length of an IPv4 header without options.
const IPV4_LEN: usize = 20;
const PROTOCOL_UDP: u8 = 17;

impl Responder {
    pub(super) fn handle_uc<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        ctx: &QpCtx<'_>,
        env: &mut Env<'_, M, S>,
        packet: &Packet<'_>,
        counters: &mut Counters,
    ) -> Verdict {
        let bth = &packet.headers.bth;
        let class = Class::of(bth.opcode.operation());
        let Some(class @ (Class::Send | Class::Write)) = class else {
            counters.drop(DropReason::Opcode);
            return Verdict::Ok;
        };
        let in_order = bth.psn == self.expected;
        self.expected = bth.psn.next();
        // A new message ends a message without its last packets (IBTA 9.8.2.2). A gap ends a
        // message, too.
        if bth.opcode.starts_message() || !in_order {
            self.message = None;
        }
        let taken = if check_sequence(class, packet, self.message.as_ref()).is_err() {
            Err(DropReason::Sequence)
        } else if check_length(class, packet, packet.mtu(ctx.attr.path_mtu)).is_err() {
            Err(DropReason::Length)
        } else {
            let step = match class {
                Class::Send => self.send_packet(ctx, env, packet),
                _ => self.write_packet(ctx, env, packet),
            };
            match step {
                Ok(()) => Ok(()),
                Err(Refusal::NotReady) => Err(DropReason::NoReceive),
                Err(Refusal::Withdrawn) => Err(DropReason::Source),
                // An error of the local buffers: class A, the only class that ends the queue pair.
                Err(Refusal::Final { code: code @ NakCode::RemoteOperational, cause, status }) => {
                    counters.drop(DropReason::Buffers);
                    return self.fail(ctx, env.effects, code, cause, status);
                }
                Err(
                    Refusal::NotInvalidated { .. }
                    | Refusal::Final { code: NakCode::RemoteAccess, .. }
                    | Refusal::Final { cause: Cause::QpAccessDenied { .. }, .. },
                ) => Err(DropReason::Access),
                Err(Refusal::Final {
                    cause: Cause::RecvTooShort { message, buffers },
                    status: WcStatus::LocLenErr,
                    ..
                }) => {
                    env.effects.unfit = Some(Unfit { message, buffers });
                    Err(DropReason::RecvTooShort)
                }
                Err(Refusal::Final { code: NakCode::InvalidRequest, .. }) => {
                    Err(DropReason::Length)
                }
                Err(Refusal::Final { .. }) => Err(DropReason::Malformed),
            }
        };
        match taken {
            Ok(()) => counters.executed = counters.executed.wrapping_add(1),
            Err(why) => {
                counters.drop(why);
                self.message = None;
            }
        }
        Verdict::Ok
    }

    pub(super) fn handle_ud<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        ctx: &QpCtx<'_>,
        env: &mut Env<'_, M, S>,
        packet: &Packet<'_>,
        counters: &mut Counters,
    ) -> Verdict {
        let operation = packet.headers.bth.opcode.operation();
        let len = GRH_LEN + packet.payload.len();
        let why = match packet.headers.deth {
            _ if !matches!(operation, Operation::SendOnly | Operation::SendOnlyImm) => {
                DropReason::Opcode
            }
            None => DropReason::Malformed,
            Some(deth) if deth.qkey != ctx.attr.qkey => DropReason::QKey,
            Some(_) if packet.payload.len() > ctx.config.port_mtu.bytes() => DropReason::Length,
            Some(_) => match self.take_receive(ctx, env, packet, false) {
                Err(_) => DropReason::NoReceive,
                Ok(()) => match self.place_datagram(env, packet, len) {
                    Ok(true) => {
                        counters.executed = counters.executed.wrapping_add(1);
                        self.complete(ctx, env.effects, packet, WcOpcode::Recv, len as u32);
                        return Verdict::Ok;
                    }
                    Ok(false) => DropReason::RecvTooShort,
                    Err(cause) => {
                        counters.drop(DropReason::Buffers);
                        let code = NakCode::RemoteOperational;
                        return self.fail(ctx, env.effects, code, cause, WcStatus::LocProtErr);
                    }
                },
            },
        };
        counters.drop(why);
        Verdict::Ok
    }

    /// Writes the 40 bytes and the payload. `Ok(false)`: the buffers are too short for both.
    fn place_datagram<M: Memory + ?Sized, S: RecvSource + ?Sized>(
        &mut self,
        env: &mut Env<'_, M, S>,
        packet: &Packet<'_>,
        len: usize,
    ) -> Result<bool, Cause> {
        let Some(active) = &mut self.active else { return Ok(false) };
        if active.room() < len as u64 {
            let message = packet.payload.len() as u64;
            env.effects.unfit = Some(Unfit { message, buffers: active.capacity });
            return Ok(false);
        }
        active.check(env.keys, len)?;
        active.place(env.keys, env.memory, &grh_area(packet))?;
        active.place(env.keys, env.memory, packet.payload)?;
        Ok(true)
    }
}

/// The 40 bytes before a datagram's payload (annex A17.4.5.1): the datagram's IP header, with the
/// fields known here.
fn grh_area(packet: &Packet<'_>) -> [u8; GRH_LEN] {
    let pad = usize::from(packet.headers.bth.pad);
    let ip_payload = UDP_LEN + packet.headers.len() + packet.payload.len() + pad + ICRC_LEN;
    match (packet.src.ipv4(), packet.dst.ipv4()) {
        (Some(src), Some(dst)) => Ipv4InGrh {
            tos: packet.traffic_class,
            total_len: (IPV4_LEN + ip_payload) as u16,
            id: 0,
            dont_fragment: true,
            ttl: packet.hop_limit,
            protocol: PROTOCOL_UDP,
            src,
            dst,
        }
        .to_bytes(),
        _ => Grh {
            traffic_class: packet.traffic_class,
            flow_label: 0,
            payload_len: ip_payload as u16,
            next_header: PROTOCOL_UDP,
            hop_limit: packet.hop_limit,
            sgid: packet.src.0,
            dgid: packet.dst.0,
        }
        .to_bytes(),
    }
}
