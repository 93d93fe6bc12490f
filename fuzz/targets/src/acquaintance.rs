//! A client and a server that know each other: where the protocol's targets begin.
//!
//! Secrets, identifiers and times are always the same, so that a ticket in a seed stays valid.

use std::net::SocketAddr;
use std::time::Duration;

use farcall_proto::client::{Call, Conversation};
use farcall_proto::server::{Export, Finish, Request, Server};
use farcall_proto::{ClientConfig, Fingerprint, ServerConfig, Time};

/// The export that the server has.
pub const EXPORT: u64 = 77;
/// The client's identifier of the conversation.
pub const CLIENT: u64 = 0xc11e;
/// Where the client is, where it may move to, and who never had a ticket.
pub const ADDRESSES: [[u8; 4]; 3] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]];
/// Room for any datagram.
pub const ROOM: usize = 1 << 16;

/// Both ends, after one call.
pub struct Acquaintance {
    /// Now.
    pub now: Time,
    /// The calling end.
    pub client: Conversation,
    /// The serving end.
    pub server: Server,
    /// The server's identifier of the conversation.
    pub conversation: u64,
}

/// The socket address of one of [`ADDRESSES`].
pub fn address(which: usize) -> SocketAddr {
    SocketAddr::from((ADDRESSES[which % 3], 1000))
}

/// A call of the export's first procedure.
pub fn call(token: u64) -> Call {
    Call { export: EXPORT, procedure: 1, deadline: None, trace: None, token }
}

/// Settings with limits that a short script can reach.
fn settings() -> (ClientConfig, ServerConfig) {
    let client = ClientConfig {
        max_outstanding: 64,
        max_result: 1 << 18,
        window: 1 << 14,
        max_datagram: 4000,
        ..ClientConfig::default()
    };
    let server = ServerConfig {
        max_conversations: 3,
        max_activities: 64,
        max_arguments: 1 << 17,
        reassembly_budget: 1 << 18,
        held_budget: 1 << 17,
        sending_budget: 1 << 18,
        window: 1 << 14,
        max_datagram: 4000,
        ..ServerConfig::default()
    };
    (client, server)
}

impl Acquaintance {
    /// A client that has made one call of the server.
    pub fn new() -> Acquaintance {
        let now = Time::from_nanos(1_000_000_000);
        let (client, server) = settings();
        let mut both = Acquaintance {
            now,
            client: Conversation::new(client, CLIENT),
            server: Server::new(server, now, [7; 32]),
            conversation: 0,
        };
        let procedures = [1, 2].map(|number| Fingerprint { number, types: 11, name: 22 }).into();
        both.server.export(Export {
            id: EXPORT,
            type_name: "Store".into(),
            instance: "one".into(),
            procedures,
        });
        both.client.start(|| now, &call(0), &mut Vec::new()).expect("room for a call");
        both.settle();
        assert_eq!(both.client.stats().outstanding, 0, "the first call came back");
        both
    }

    /// Exchanges datagrams until both are silent; calls are answered with nothing.
    fn settle(&mut self) {
        let mut out = vec![0; ROOM];
        loop {
            let mut asked = Vec::new();
            let mut silent = true;
            while let Some(length) = self.client.transmit(self.now, &mut out) {
                silent = false;
                self.server.receive(self.now, address(0), &out[..length], &mut |request| {
                    if let Request::Call(call) = request {
                        asked.push(call.key);
                    }
                });
            }
            for key in asked {
                self.conversation = key.conversation;
                if let Some(sent) =
                    self.server.finish(self.now, key, Finish::Result, &mut Vec::new(), &mut out)
                {
                    self.client.receive(self.now, &out[..sent.len], &mut |_| {});
                }
            }
            while let Some(sent) = self.server.transmit(self.now, &mut out) {
                silent = false;
                self.client.receive(self.now, &out[..sent.len], &mut |_| {});
            }
            if silent {
                return;
            }
            self.now = self.now + Duration::from_micros(50);
        }
    }
}

impl Default for Acquaintance {
    fn default() -> Self {
        Acquaintance::new()
    }
}
