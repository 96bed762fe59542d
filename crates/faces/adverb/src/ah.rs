//! Address handles.
use crate::error::{Error, Result};
use crate::pd::Pd;
use adverb_device::context::AhAttr;
use adverb_device::device::PORT;
use adverb_device::engine::{AddressVector, Gid};

/// The bytes in front of each UD message in the receive buffer: the GRH, or the IP header in its
/// place (IBTA 11.4.1.2).
pub const GRH_LEN: usize = 40;
/// The hop limit of sent packets.
const HOP_LIMIT: u8 = 64;

/// The destination of datagrams (`ibv_create_ah(3)`, IBTA 11.2.2.1). A handle is cheap to clone.
#[derive(Clone, Debug)]
pub struct Ah {
    av: AddressVector,
    _pd: Pd,
}

impl Pd {
    /// Makes an address handle for datagrams to `gid`. The source is the first GID of the device
    /// with the address family of `gid` (`ibv_create_ah(3)`).
    ///
    /// # Errors
    /// [`Error::NoAddress`](crate::Error::NoAddress) if the device has no address of this family;
    /// EINVAL for the zero GID.
    pub fn create_ah(&self, gid: Gid) -> Result<Ah> {
        let context = self.context();
        let is_v4 = gid.ipv4().is_some();
        let fits = |g: &Gid| !g.is_zero() && g.ipv4().is_some() == is_v4;
        let source = context.lower().gids().iter().position(fits);
        let index = source.and_then(|i| u8::try_from(i).ok()).ok_or(Error::NoAddress)?;
        Ok(Ah { av: path(context, index, gid)?, _pd: self.clone() })
    }
}

impl Ah {
    /// The destination.
    #[must_use]
    pub fn gid(&self) -> Gid {
        self.av.dgid
    }

    pub(crate) fn av(&self) -> AddressVector {
        self.av
    }
}

/// The path from the GID at `index` to `dgid`.
pub(crate) fn path(context: &crate::Context, index: u8, dgid: Gid) -> Result<AddressVector> {
    let attr = AhAttr {
        dgid,
        sgid_index: index,
        hop_limit: HOP_LIMIT,
        is_global: true,
        port_num: PORT,
        ..AhAttr::default()
    };
    Ok(context.lower().resolve(&attr)?)
}
