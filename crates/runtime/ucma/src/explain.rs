//! Texts for the log that explain a failure.
use adverb_cm::ip::{PS_IB, PS_IPOIB, PS_TCP, PS_UDP, port_of};
use adverb_cm::{MadKind, Path, Rejection};
use std::time::Duration;

/// A service id in readable form.
pub fn service(service_id: u64) -> String {
    match port_of(service_id) {
        Some((PS_TCP, port)) => format!("port {port} (RDMA_PS_TCP)"),
        Some((PS_UDP, port)) => format!("port {port} (RDMA_PS_UDP)"),
        Some((PS_IPOIB, port)) => format!("port {port} (RDMA_PS_IPOIB)"),
        Some((PS_IB, port)) => format!("port {port} (RDMA_PS_IB)"),
        _ => format!("service id {service_id:#x}"),
    }
}

/// A refusal: the peer, the service and the reason.
pub fn rejected(path: Path, service_id: u64, rejection: &Rejection) -> String {
    format!(
        "{} refused the connection to {}: {}",
        path.remote,
        service(service_id),
        rejection.reason
    )
}

/// A message that got no answer.
#[derive(Debug)]
pub struct Silence {
    /// Kind of the message.
    pub message: MadKind,
    pub sent: u32,
    pub waited: Duration,
    pub path: Path,
    pub service_id: u64,
    pub device: String,
    /// The peer's address belongs to this machine.
    pub local: bool,
    /// MADs that this process has received from all peers, and from this peer.
    pub mads: u64,
    pub from_peer: u64,
}

/// Explains why a message may have got no answer.
pub fn silence(s: &Silence) -> String {
    let text = format!(
        "{} did not answer the {} for {} (sent {} times in {:.1} s, from {} on {})",
        s.path.remote,
        s.message,
        service(s.service_id),
        s.sent,
        s.waited.as_secs_f64(),
        s.path.local,
        s.device
    );
    let why = if s.from_peer > 0 {
        format!(
            "; {} MADs have come from this address, so the way is open: the listener's backlog is \
             full, or the program does not answer requests",
            s.from_peer
        )
    } else if s.local {
        "; this machine has the address: the process with the port is stopped, or belongs to \
         another user"
            .into()
    } else if s.mads > 0 {
        "; MADs come from other addresses, but none from this address: check the address, the RDMA \
         device there, and firewalls for UDP port 4791"
            .into()
    } else {
        "; no MAD has come from any address: check the address, and firewalls for UDP port 4791 in \
         both directions"
            .into()
    };
    text + &why
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ucm_9_silence_says_what_is_known() {
        let path = Path { local: "10.0.0.1".parse().unwrap(), remote: "10.0.0.2".parse().unwrap() };
        let silent = |local, mads, from_peer| {
            silence(&Silence {
                message: MadKind::Req,
                sent: 16,
                waited: Duration::from_secs(77),
                path,
                service_id: 0x0106_1d2f,
                device: "adverb0".into(),
                local,
                mads,
                from_peer,
            })
        };
        assert!(silent(false, 0, 0).contains("no MAD has come from any address"));
        assert!(silent(false, 3, 0).contains("none from this address"));
        assert!(silent(false, 3, 1).contains("backlog is full"));
        assert!(silent(true, 0, 0).contains("this machine has the address"));
        let text = silent(false, 0, 0);
        for part in ["10.0.0.2", "REQ", "port 7471 (RDMA_PS_TCP)", "16 times", "adverb0"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
