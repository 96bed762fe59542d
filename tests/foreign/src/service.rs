//! Listeners of the connection manager, found by their abstract socket names.

use std::time::{Duration, Instant};

use crate::process::Running;

/// Waits until a program listens at a port of a port space (IBTA annex A11: the upper half of a
/// service id).
///
/// # Errors
/// The program ends or the time is over before.
pub fn wait(server: &mut Running, space: u64, port: u16, limit: Duration) -> Result<(), String> {
    let name = format!("-cm-{:x}-", space << 16 | u64::from(port));
    let end = Instant::now() + limit;
    loop {
        let names = std::fs::read_to_string("/proc/net/unix").map_err(|e| format!("/proc/net/unix: {e}"))?;
        if names.contains(&name) {
            return Ok(());
        }
        if server.ended() || Instant::now() > end {
            return Err(format!("nobody listens at port {port}:\n{}", server.text()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
