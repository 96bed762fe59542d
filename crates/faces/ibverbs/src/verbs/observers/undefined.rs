//! In a failed completion only `wr_id`, `status`, `qp_num` and `vendor_err` are defined. In a
//! message without immediate data, and without an invalidated key, `imm_data` is undefined.
//! Instruments fill undefined fields with random values.
use crate::abi::*;
use adverb_device::engine::{Completion, WcFlags, WcOpcode};

/// Fills the undefined fields of a failed completion.
pub fn scramble(wc: &mut ibv_wc, garbage: u64) {
    let [low, high] = [garbage as u32, (garbage >> 32) as u32];
    // Another kind of request, sometimes of the other direction.
    wc.opcode =
        [IBV_WC_SEND, IBV_WC_RECV, IBV_WC_RDMA_WRITE, IBV_WC_RECV_RDMA_WITH_IMM][low as usize % 4];
    wc.byte_len = high | 1;
    wc.imm_data = low ^ high;
    wc.src_qp = high >> 8;
    wc.wc_flags = low >> 28;
    wc.slid = low as u16;
    wc.sl = high as u8;
    wc.dlid_path_bits = low as u8;
}

/// As [`scramble`], for the current completion of an extended poll.
pub fn scramble_current(c: &mut Completion, garbage: u64) {
    let [low, high] = [garbage as u32, (garbage >> 32) as u32];
    c.opcode = [WcOpcode::Send, WcOpcode::Recv, WcOpcode::RdmaWrite, WcOpcode::RecvRdmaWithImm]
        [low as usize % 4];
    c.byte_len = high | 1;
    c.imm = low ^ high;
    c.src_qpn = high >> 8;
    c.flags = WcFlags::from_bits_truncate(low >> 28);
    c.sl = high as u8;
}

/// Is `imm_data` of a received message undefined?
pub fn lacks_immediate(wc: &ibv_wc) -> bool {
    wc.opcode & IBV_WC_RECV != 0 && wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV) == 0
}

/// As [`lacks_immediate`], for the current completion of an extended poll.
pub fn current_lacks_immediate(c: &Completion) -> bool {
    c.opcode as u32 >= WcOpcode::Recv as u32
        && !c.flags.intersects(WcFlags::WITH_IMM | WcFlags::WITH_INV)
}
