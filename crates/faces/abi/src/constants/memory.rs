//! Constants of memory regions, windows and domains.

use crate::c_enums;

c_enums! {
    /// `ibv_dm::comp_mask`.
    ibv_dm_mask: u32 {
        IBV_DM_MASK_HANDLE = 1 << 0,
    }

    /// Access rights of a memory region, a window or a QP.
    ibv_access_flags: u32 {
        IBV_ACCESS_LOCAL_WRITE = 1 << 0,
        IBV_ACCESS_REMOTE_WRITE = 1 << 1,
        IBV_ACCESS_REMOTE_READ = 1 << 2,
        IBV_ACCESS_REMOTE_ATOMIC = 1 << 3,
        IBV_ACCESS_MW_BIND = 1 << 4,
        IBV_ACCESS_ZERO_BASED = 1 << 5,
        IBV_ACCESS_ON_DEMAND = 1 << 6,
        IBV_ACCESS_HUGETLB = 1 << 7,
        IBV_ACCESS_FLUSH_GLOBAL = 1 << 8,
        IBV_ACCESS_FLUSH_PERSISTENT = 1 << 9,
        IBV_ACCESS_RELAXED_ORDERING = 1 << 20,
    }

    /// What `ibv_rereg_mr` changes.
    ibv_rereg_mr_flags: u32 {
        IBV_REREG_MR_CHANGE_TRANSLATION = 1 << 0,
        IBV_REREG_MR_CHANGE_PD = 1 << 1,
        IBV_REREG_MR_CHANGE_ACCESS = 1 << 2,
        IBV_REREG_MR_FLAGS_SUPPORTED = 0x7,
    }

    /// `ibv_mr_init_attr::comp_mask`.
    ibv_mr_init_attr_mask: u64 {
        IBV_REG_MR_MASK_IOVA = 1 << 0,
        IBV_REG_MR_MASK_ADDR = 1 << 1,
        IBV_REG_MR_MASK_FD = 1 << 2,
        IBV_REG_MR_MASK_FD_OFFSET = 1 << 3,
        IBV_REG_MR_MASK_DMAH = 1 << 4,
        IBV_REG_MR_MASK_BUF = 1 << 5,
    }

    /// Memory window types.
    ibv_mw_type: u32 {
        IBV_MW_TYPE_1 = 1,
        IBV_MW_TYPE_2 = 2,
    }

    /// Flush: how far the data must get.
    ibv_placement_type: u8 {
        IBV_FLUSH_GLOBAL = 1 << 0,
        IBV_FLUSH_PERSISTENT = 1 << 1,
    }

    /// Flush: what is flushed.
    ibv_selectivity_level: u8 {
        IBV_FLUSH_RANGE = 0,
        IBV_FLUSH_MR = 1,
    }

    /// `ibv_parent_domain_init_attr::comp_mask`.
    ibv_parent_domain_init_attr_mask: u32 {
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS = 1 << 0,
        IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT = 1 << 1,
        IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC = 1 << 2,
    }

    /// Steering hint memory types.
    ibv_tph_mem_type: u32 {
        IBV_TPH_MEM_TYPE_VM = 0,
        IBV_TPH_MEM_TYPE_PM = 1,
    }

    /// `ibv_dmah_init_attr::comp_mask`.
    ibv_dmah_init_attr_mask: u32 {
        IBV_DMAH_INIT_ATTR_MASK_CPU_ID = 1 << 0,
        IBV_DMAH_INIT_ATTR_MASK_PH = 1 << 1,
        IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE = 1 << 2,
    }

    /// Results of `ibv_rereg_mr`.
    ibv_rereg_mr_err_code: i32 {
        IBV_REREG_MR_ERR_INPUT = -1,
        IBV_REREG_MR_ERR_DONT_FORK_NEW = -2,
        IBV_REREG_MR_ERR_DO_FORK_OLD = -3,
        IBV_REREG_MR_ERR_CMD = -4,
        IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW = -5,
    }

    /// Advice of `ibv_advise_mr`.
    ibv_advise_mr_advice: u32 {
        IBV_ADVISE_MR_ADVICE_PREFETCH = 0,
        IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE = 1,
        IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT = 2,
    }

    /// Flags of `ibv_advise_mr`.
    advise_mr_flags: u32 {
        IBV_ADVISE_MR_FLAG_FLUSH = 1 << 0,
    }

    /// The optional access bits: a device ignores unknown bits of this range.
    access_optional: u32 {
        IBV_ACCESS_OPTIONAL_FIRST = 1 << 20,
        IBV_ACCESS_OPTIONAL_RANGE = 0x3ff00000,
    }
}
