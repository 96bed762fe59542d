//! Datagrams: one queue pair sends to any other, without a connection.
use adverb::testing::Endpoint;
use adverb::{GRH_LEN, Result};

/// Runs the example.
pub fn main() -> Result<()> {
    let hub = Endpoint::new(|qp| qp.ud().qkey(0x1234))?;
    // The first 40 bytes of each receive are the GRH.
    let inbox = hub.pd.alloc(GRH_LEN + 256)?;
    let address = hub.qp.info()?;
    for i in 0..3 {
        let spoke = Endpoint::new(|qp| qp.ud().qkey(0x1234))?;
        let to_hub = spoke.pd.create_ah(address.gid)?;
        hub.qp.recv(&inbox).post()?;
        let text = format!("datagram {i}");
        spoke.qp.send(text.as_str()).to(&to_hub, address.number, address.qkey).post()?;
        let got = hub.completion()?;
        assert_eq!(got.source_qp(), spoke.qp.number());
        assert_eq!(inbox.to_vec(GRH_LEN..got.byte_len())?, text.as_bytes());
    }
    Ok(())
}
