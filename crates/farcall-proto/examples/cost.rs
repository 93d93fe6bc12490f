//! Calls through both ends of the core in one thread and without I/O: what the protocol alone costs.
//! Run it under `perf stat -e instructions:u` with two counts and take the difference.

use std::net::SocketAddr;

use farcall_proto::client::{Call, Conversation};
use farcall_proto::server::{Export, Finish, Request, Server};
use farcall_proto::{ClientConfig, ServerConfig, Time};

fn main() {
    let calls: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1_000_000);
    let mut client = Conversation::new(ClientConfig::default(), 1);
    let mut server = Server::new(ServerConfig::default(), Time::default(), [1; 32]);
    server.export(Export { id: 1, type_name: "T".into(), instance: "i".into(), procedures: vec![] });
    let from: SocketAddr = "127.0.0.1:9".parse().expect("an address");
    let mut out = vec![0; 65_536];
    let mut back = vec![0; 65_536];
    let call = Call { export: 1, procedure: 1, deadline: None, trace: None, token: 0 };
    let mut results = 0;
    for i in 0..calls {
        let now = Time::from_nanos(i * 1000);
        let mut args = client.buffer();
        args.extend_from_slice(&[7; 36]);
        client.start(now, &call, args).expect("room");
        while let Some(n) = client.transmit(now, &mut out) {
            let mut payload = server.buffer(now, 0);
            let mut todo = None;
            server.handle(now, from, &out[..n], &mut |r| {
                if let Request::Call(call) = r {
                    payload.extend_from_slice(&call.args[..32]);
                    todo = Some(call.key);
                }
            });
            let sent = match todo {
                Some(key) => server.finish(now, key, Finish::Result, &mut payload, &mut back),
                None => server.transmit(now, &mut back),
            };
            if let Some(sent) = sent {
                client.handle(now, &back[..sent.len], &mut |_| results += 1);
            }
        }
    }
    println!("{results} results");
}
