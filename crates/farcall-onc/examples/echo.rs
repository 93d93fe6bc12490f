//! A server and a client of ONC RPC: `echo serve`, and `echo call tcp://127.0.0.1:PORT 1000`.

use std::sync::Arc;
use std::time::Instant;

use farcall_onc::{Client, Server};

/// What is served.
#[farcall::interface(program = 0x2000_0099, version = 1)]
pub trait Echo {
    /// The null procedure.
    #[procedure(0)]
    fn null(&self) -> farcall::Result<()>;
    /// What it was given.
    #[procedure(1)]
    fn echo(&self, data: &[u8]) -> farcall::Result<Vec<u8>>;
}

struct Same;

impl Echo for Same {
    fn null(&self) -> farcall::Result<()> {
        Ok(())
    }

    fn echo(&self, data: &[u8]) -> farcall::Result<Vec<u8>> {
        Ok(data.to_vec())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve"] => {
            let server = Server::builder()
                .program::<dyn Echo>(Arc::new(Same))
                .address("127.0.0.1:0".parse()?)
                .start()?;
            for (transport, address) in server.addresses() {
                println!("{transport:?} {address}");
            }
            server.wait();
            Ok(())
        }
        ["call", address, times] => {
            let echo = Client::connect(address)?.bind::<dyn Echo>();
            let (times, start) = (times.parse()?, Instant::now());
            for _ in 0..times {
                echo.null()?;
            }
            println!("{:?} a call", start.elapsed() / times);
            Ok(())
        }
        _ => Err("echo serve, or echo call ADDRESS TIMES".into()),
    }
}
