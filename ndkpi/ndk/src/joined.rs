//! Connects two queue pairs of one process without connectors, for tests and benchmarks.
use crate::qp::{PeerPath, Qp};
use crate::status::NtStatus;
use adverb_device::engine::Gid;

/// First PSN of both ends, near the end of the 24 bits, so that PSNs wrap around soon.
const FIRST_PSN: u32 = 0x00ff_fff0;
/// Maximum number of reads in progress in each direction.
const READS: u8 = 16;

/// Connects two queue pairs of this process, over the first IPv4 address of each adapter.
///
/// # Errors
/// `INVALID_ADDRESS` for an adapter without an IPv4 address, `CONNECTION_INVALID` if a queue pair
/// was connected before, flushed or closed, `INVALID_PARAMETER` if there is no path between the
/// two.
pub fn join(a: &Qp, b: &Qp) -> Result<(), NtStatus> {
    let (paths_a, paths_b) = (path(a, b)?, path(b, a)?);
    a.to_rtr(&paths_a)?;
    b.to_rtr(&paths_b)?;
    a.to_rts(&paths_a)?;
    b.to_rts(&paths_b)?;
    a.connected(|| ())?;
    b.connected(|| ())
}

/// Ends the connection of a queue pair, as a disconnect does.
pub fn part(qp: &Qp) {
    qp.disconnected();
}

fn path(from: &Qp, to: &Qp) -> Result<PeerPath, NtStatus> {
    let (sgid_index, _) = address(from)?;
    let (_, dgid) = address(to)?;
    let mtu = |qp: &Qp| qp.device().context().port_mtu();
    Ok(PeerPath {
        sgid_index,
        dgid,
        dest_qpn: to.device().number(),
        rq_psn: FIRST_PSN,
        sq_psn: FIRST_PSN,
        mtu: mtu(from).min(mtu(to)),
        inbound_reads: READS,
        outbound_reads: READS,
    })
}

fn address(qp: &Qp) -> Result<(u8, Gid), NtStatus> {
    let gids = qp.device().context().gids();
    let index = gids.iter().position(|g| g.ipv4().is_some()).ok_or(NtStatus::INVALID_ADDRESS)?;
    Ok((index as u8, gids[index]))
}
