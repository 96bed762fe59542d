//! Memory windows.

use super::{close_function, query_extension};
use crate::abi::*;
use crate::guard::guarded;
use crate::kinds::{Mw, kind};
use crate::objects::behind;

kind!(Mw: NDK_MW, adverb_ndk::Mw, NdkObjectTypeMw, DISPATCH);

/// The function table.
pub static DISPATCH: NDK_MW_DISPATCH = NDK_MW_DISPATCH {
    NdkCloseMw: close,
    NdkQueryExtension: query_extension,
    NdkGetRemoteTokenFromMw: get_remote_token,
};

close_function!(Mw);

unsafe extern "C" fn get_remote_token(mw: *mut NDK_MW) -> u32 {
    // SAFETY: "What C promises", 1.
    guarded(0, || unsafe { behind::<Mw>(mw) }.map_or(0, |mw| mw.get_remote_token()))
}
