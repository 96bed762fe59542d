//! The vendor error numbers that programs print on ConnectX NICs, with their meaning in public
//! reports.
//!
//! The vendor publishes no list. These are the numbers that users paste most, with the completion
//! status printed beside each.

/// A vendor error number.
pub struct Code {
    pub number: u32,
    /// The completion's status, as named by `ibv_wc_status`.
    pub status: &'static str,
    pub meaning: &'static str,
    /// The code of the cause that Adverb reports in the same situation.
    pub cause: Option<u32>,
}

pub const CODES: &[Code] = &[
    Code {
        number: 0x51,
        status: "IBV_WC_LOC_PROT_ERR",
        meaning: "Local protection error: an lkey of the program's own request is unknown, belongs to another protection domain, or \
                  does not cover the memory of the request. The usual reasons are a deregistered region and a region that is \
                  too short.",
        cause: Some(0x03),
    },
    Code {
        number: 0x52,
        status: "IBV_WC_LOC_PROT_ERR",
        meaning: "Local protection error, as 0x51: the lkey of a scatter/gather entry is not valid for the entry's memory.",
        cause: Some(0x01),
    },
    Code {
        number: 0x81,
        status: "IBV_WC_RETRY_EXC_ERR",
        meaning: "Transport retry counter exceeded: no acknowledgement came after all retransmissions. The peer has ended, was never \
                  connected to this queue pair, or the path loses packets.",
        cause: Some(0x81),
    },
    Code {
        number: 0x88,
        status: "IBV_WC_REM_ACCESS_ERR",
        meaning: "Remote access error: the peer refused the rkey, the bounds or the right of a READ, WRITE or atomic.",
        cause: Some(0x83),
    },
    Code {
        number: 0x89,
        status: "IBV_WC_REM_OP_ERR",
        meaning: "Remote operation error: the peer could not carry the request out, often because of a bad key or bad memory of the \
                  peer's receive buffer. The peer's own completions say more.",
        cause: Some(0x83),
    },
    Code {
        number: 0x8a,
        status: "IBV_WC_REM_INV_REQ_ERR",
        meaning: "Remote invalid request: longer than the posted receive, or an operation that the peer's queue pair does not allow.",
        cause: Some(0x83),
    },
    Code {
        number: 0xf4,
        status: "IBV_WC_WR_FLUSH_ERR",
        meaning: "Flushed: not carried out, because the queue pair had failed before. Look at the first completion with another \
                  status.",
        cause: Some(0xf9),
    },
    Code {
        number: 0xf9,
        status: "IBV_WC_WR_FLUSH_ERR",
        meaning: "Flushed (printed as 249): not carried out, because the queue pair had failed before. Look at the first completion \
                  with another status, on either end.",
        cause: Some(0xf9),
    },
    Code {
        number: 65537,
        status: "varies",
        meaning: "Reports contain 65537 (0x10001) without a published meaning. Go by the completion's status.",
        cause: None,
    },
];

/// What is known of a number. Users often drop the `0x`: 81 may mean 0x51, or 0x81.
pub fn by_number(number: u32) -> impl Iterator<Item = &'static Code> {
    let meant_as_hex = u32::from_str_radix(&number.to_string(), 16).unwrap_or(number);
    CODES.iter().filter(move |c| c.number == number || c.number == meant_as_hex)
}
