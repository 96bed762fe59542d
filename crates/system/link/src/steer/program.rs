//! The BPF program. The kernel runs it over the UDP payload, so offsets count from the BTH.

use adverb_wire::{Bth, Deth};

use adverb_local::{MAD_QPN, SLOT_BITS, SLOT_SHIFT, STEERING_QPN, Slot};
use adverb_os::sys::Insn;

/// The offset of a MAD.
const MAD: u32 = (Bth::LEN + Deth::LEN) as u32;
/// The word with the management class (IBTA 13.4.4).
const CLASS: u32 = MAD;
/// The class of the communication manager (IBTA 13.4.4).
const CM_CLASS: u32 = 7;
/// The word with the attribute, which is the kind of the message (IBTA 16.7.3).
const ATTRIBUTE: u32 = MAD + 16;
const REQ: u32 = 0x10;
const SIDR_REQ: u32 = 0x17;
const SIDR_REP: u32 = 0x18;
/// The receiver's communication id in a message.
const REMOTE_ID: u32 = MAD + 28;
/// The receiver's communication id in a reply to a lookup: the first id.
const REQUEST_ID: u32 = MAD + 24;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const SHIFT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const IF_EQ: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const RETURN_A: u16 = (libc::BPF_RET | 0x10) as u16;
/// Past the end of every group, so that the kernel's hash decides.
const ANYBODY: Insn = Insn(RETURN, 0, 0, u32::MAX);

/// Steers steering tests by their PSN, other packets by the slot in their QPN, and MADs by the slot
/// in the receiver's communication id. The kernel's hash decides for everything else, because the
/// kernel falls back to the hash if the index is out of range. A request has a service instead of
/// an id: the hash chooses a process, which forwards the request.
pub(super) fn program(table: &[(Slot, u32)]) -> Vec<Insn> {
    let mut code = vec![
        Insn(LOAD, 0, 0, 4),
        Insn(AND, 0, 0, 0xff_ffff),
        Insn(IF_EQ, 0, 3, STEERING_QPN),
        Insn(LOAD, 0, 0, 8),
        Insn(AND, 0, 0, 0xff_ffff),
        Insn(RETURN_A, 0, 0, 0),
        Insn(IF_EQ, 2, 0, MAD_QPN),
        Insn(SHIFT, 0, 0, SLOT_SHIFT),
        Insn(JUMP, 0, 0, 14),
        // Whether the MAD is of the communication manager.
        Insn(LOAD, 0, 0, CLASS),
        Insn(SHIFT, 0, 0, 16),
        Insn(AND, 0, 0, 0xff),
        Insn(IF_EQ, 0, 4, CM_CLASS),
        Insn(LOAD, 0, 0, ATTRIBUTE),
        Insn(SHIFT, 0, 0, 16),
        Insn(IF_EQ, 1, 0, REQ),
        Insn(IF_EQ, 0, 1, SIDR_REQ),
        ANYBODY,
        Insn(IF_EQ, 0, 2, SIDR_REP),
        Insn(LOAD, 0, 0, REQUEST_ID),
        Insn(JUMP, 0, 0, 1),
        Insn(LOAD, 0, 0, REMOTE_ID),
        Insn(SHIFT, 0, 0, u32::BITS - SLOT_BITS),
    ];
    for &(slot, index) in table {
        code.push(Insn(IF_EQ, 0, 1, u32::from(slot)));
        code.push(Insn(RETURN, 0, 0, index));
    }
    code.push(ANYBODY);
    code
}
