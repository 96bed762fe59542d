//! The memory torture. The C program of `c/` takes random steps on memory, registers parts of the
//! memory, and lets other processes write to these parts by RDMA and by other means. The program
//! compares every byte with a model without knowledge of registration. The program uses Adverb from
//! outside, like any program under `adverb run`.
//!
//! | program | tests |
//! |---|---|
//! | `torture` | the scenarios, and then one seed after the other |
//! | `soak` | what processes leave behind |
//! | `kill` | processes killed in mid-traffic, with a peer that survives |
//! | `armed` | ten million armed notifications, each accounted for |
//! | `scale` | ten thousand connected queue pairs, and a mesh of processes: memory, latency, every byte verified |
//! | `gigabyte` | a gigabyte under each fault, every byte checked, with its goodput |
//!
//! `c/scenarios.c` lists the scenarios, each with its requirement. MEM-1: growth, advice, waiters
//! and the time after the last deregistration. MEM-2: bounds, rights and a stopped writer. MEM-3:
//! other processes. MEM-4: vanished memory. MEM-5: memory that is returned. MEM-6: fork. MEM-7:
//! programs that hook `mmap`.
#![forbid(unsafe_code)]

pub mod allocators;
pub mod programs;
pub mod run;

/// The two paths between processes of one host: `ADVERB_PATH`.
pub const PATHS: [&str; 2] = ["local", "wire"];

/// Numbers that the same seed repeats (SplitMix64).
#[derive(Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next number, less than `below`.
    pub fn roll(&mut self, below: u64) -> u64 {
        self.next_u64() % below
    }
}
