//! A client and a server that have exchanged one call. The protocol's fuzz targets start from this state.
//!
//! Secrets, identifiers and times are the same in every run, so that a ticket in a seed stays valid.

use std::net::SocketAddr;
use std::time::Duration;

use farcall_proto::client::{Call, Conversation};
use farcall_proto::server::{Export, Finish, Request, Server};
use farcall_proto::{ClientConfig, Fingerprint, ServerConfig, Time};

/// The export that the server has.
pub const EXPORT: u64 = 77;
/// The client's identifier of the conversation.
pub const CLIENT: u64 = 0xc11e;
/// The client's address, an address to which the client can move, and a stranger's, which never got a ticket.
pub const ADDRESSES: [[u8; 4]; 3] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]];
/// The size of a buffer that holds any datagram, in bytes.
pub const ROOM: usize = 1 << 16;

/// Both ends of a conversation, after one call.
pub struct Acquaintance {
    /// The current time.
    pub now: Time,
    /// The end that makes calls.
    pub client: Conversation,
    /// The end that serves calls.
    pub server: Server,
    /// The server's identifier of the conversation.
    pub conversation: u64,
}

/// Returns the socket address with one of the [`ADDRESSES`].
pub fn address(which: usize) -> SocketAddr {
    SocketAddr::from((ADDRESSES[which % 3], 1000))
}

/// Returns a call of the export's first procedure.
pub fn call(token: u64) -> Call {
    Call { export: EXPORT, procedure: 1, deadline: None, trace: None, token }
}

/// Returns settings with limits that a short script can reach.
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
    /// Makes a client and a server, and lets the client make one call.
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
        assert_eq!(both.client.stats().outstanding, 0, "the first call has its result");
        both
    }

    /// Exchanges datagrams until neither end has more to send. Calls get empty results.
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
