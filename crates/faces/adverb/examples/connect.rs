//! Connection setup by address and port, as in rdma_cm programs. Two threads stand for two
//! processes.
use adverb::connect::{Listener, Options, connect_with};
use adverb::testing::Endpoint;
use adverb::{RemoteBuf, Result};

/// Runs the example.
pub fn main() -> Result<()> {
    let listener = Listener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;

    let server = std::thread::spawn(move || -> Result<()> {
        let end = Endpoint::new(|qp| qp)?;
        let board = end.pd.create_buffer(64).remote_write().build()?;
        end.qp.recv(()).post()?;
        // The private data tells the peer where to write.
        let options = Options::private(board.remote().to_bytes());
        let connection = listener.accept()?.accept_with(&end.qp, &options)?;
        assert!(connection.peer().private_data.starts_with(b"I would like to write"));
        end.completion()?;
        assert_eq!(board.to_vec(..5)?, b"hello");
        Ok(())
    });

    let end = Endpoint::new(|qp| qp)?;
    let connection = connect_with(address, &end.qp, &Options::private(*b"I would like to write"))?;
    let board = RemoteBuf::from_bytes(&connection.peer().private_prefix());
    end.qp.write_imm("hello", board, 0).post()?;
    end.completion()?;
    server.join().expect("the server did not panic")
}
