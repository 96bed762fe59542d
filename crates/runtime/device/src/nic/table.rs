//! The NICs, with data from their kernel drivers, their providers in rdma-core, and output printed
//! by users.
use super::room::Room;
use super::{Has, Nic};
use adverb_engine::QpType::{RawPacket, Rc, Uc, Ud, XrcRecv, XrcSend};
use adverb_engine::cq::arm::ArmRule;

/// All NICs.
pub const ALL: &[Nic] = &[
    Nic {
        name: "mlx5",
        of: "NVIDIA ConnectX-5 (ibv_devinfo of firmware 16; inline data by libmlx5's size of a request)",
        qp_types: &[Rc, Uc, Ud, XrcSend, XrcRecv, RawPacket],
        has: Has::all().difference(Has::FLUSH),
        max_qp_wr: 32_768,
        max_sge: 30,
        max_sge_rd: 30,
        max_inline: 828,
        room: Room::Blocks,
        max_cqe: 4_194_303,
        max_rd_atomic: 16,
        max_srq_wr: 32_767,
        arms: ArmRule::Waiting,
    },
    Nic {
        name: "irdma",
        of: "Intel E810 as RoCE; of the kernel's and of Intel's own driver the smaller numbers",
        qp_types: &[Rc, Ud],
        has: Has::RDMA
            .union(Has::IMM)
            .union(Has::INVALIDATE)
            .union(Has::LOCAL_INVALIDATE)
            .union(Has::WINDOWS)
            .union(Has::MULTICAST)
            .union(Has::RESIZE),
        max_qp_wr: 4063,
        max_sge: 6,
        max_sge_rd: 6,
        max_inline: 101,
        room: Room::AsAsked,
        max_cqe: 1_048_574,
        max_rd_atomic: 8,
        max_srq_wr: 0,
        arms: ArmRule::Later,
    },
    Nic {
        name: "efa",
        of: "Amazon EFA by its UD queue pairs (providers/efa; SRD is a driver's own kind)",
        qp_types: &[Ud],
        has: Has::IMM.union(Has::RESET_TWICE),
        max_qp_wr: 4096,
        max_sge: 2,
        max_sge_rd: 1,
        max_inline: 32,
        room: Room::AsAsked,
        max_cqe: 4_194_303,
        max_rd_atomic: 0,
        max_srq_wr: 0,
        arms: ArmRule::Later,
    },
    Nic {
        name: "siw",
        of: "software iWARP (drivers/infiniband/sw/siw)",
        qp_types: &[Rc],
        has: Has::RDMA.union(Has::SRQ).union(Has::INVALIDATE).union(Has::RESET_TWICE),
        max_qp_wr: 32_768,
        max_sge: 6,
        max_sge_rd: 1,
        max_inline: 80,
        room: Room::AllInline,
        max_cqe: 3_276_800,
        max_rd_atomic: 128,
        max_srq_wr: 327_680,
        arms: ArmRule::Later,
    },
];
