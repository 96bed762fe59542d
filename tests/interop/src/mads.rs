//! A network with a delay for messages of the connection manager, and for nothing else.

use std::process::Command;

use adverb_foreign::process::output_of;

/// Half a second for each packet to queue pair 1.
const RATE: &str = "5kbit";

/// While this value exists, packets from this side to queue pair 1 over IPv4 leave one after the
/// other, half a second apart.
#[derive(Debug)]
pub struct SlowMads(());

impl SlowMads {
    /// Starts the delay.
    ///
    /// # Errors
    /// The error message of `tc`.
    pub fn begin() -> Result<SlowMads, String> {
        tc("qdisc add dev vm0 root handle 1: htb")?;
        let slow = SlowMads(());
        tc(&format!(
            "class add dev vm0 parent 1: classid 1:1 htb rate {RATE} burst 1b cburst 1b quantum 1514"
        ))?;
        // The destination queue pair lies behind 20 bytes of IPv4, 8 of UDP and 4 of the BTH.
        tc("filter add dev vm0 parent 1: protocol ip u32 match ip protocol 17 0xff \
            match ip dport 4791 0xffff match u32 1 0xffffff at 32 flowid 1:1")?;
        Ok(slow)
    }
}

impl Drop for SlowMads {
    fn drop(&mut self) {
        if let Err(why) = tc("qdisc del dev vm0 root") {
            eprintln!("{why}");
        }
    }
}

fn tc(line: &str) -> Result<(), String> {
    output_of(Command::new("tc").args(line.split_whitespace()), &format!("tc {line}")).map(drop)
}
