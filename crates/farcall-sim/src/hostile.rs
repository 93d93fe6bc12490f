//! A hostile peer. The servers have accepted it as a client, and it keeps them busy with work that never
//! ends.
//!
//! The peer has a machine of its own, which is many hosts of a network of its own. It sends no call that could be executed. It sends only fragments of calls
//! that never become complete, frames of activities with numbers far apart, frames of exchanges that belong
//! to no call, and many probes. The number of each datagram encodes how many bytes may answer it
//! ([`answered_by`]).

use std::net::{IpAddr, SocketAddr};

use farcall_proto::Time;
use farcall_proto::client::{Call, Conversation, Event as Told};
use farcall_proto::fuzzing::kinds::{ACK, CALL, CANCEL, CREDIT, DATA, PROBE, STOP};
use xxhash_rust::xxh3::xxh3_64;

use crate::ground::{Event, Ground};
use crate::names::NAME;
use crate::net::{MICROS, MILLIS, address, address_in_network};

/// The number of the peer's hosts, each of which has a conversation with each server.
const HOSTS: u8 = 8;

/// The claimed length of arguments that never come whole, in bytes.
const TOTAL: u32 = 20_000;

/// The call about whose arguments the peer asks again and again.
const PROBED: u32 = 1;

/// Returns the addresses that a peer's machine has.
pub fn addresses(machine: usize) -> impl Iterator<Item = IpAddr> {
    (0..HOSTS).map(move |host| address_in_network(machine, host, 0).ip())
}

/// The peer and its machine.
pub struct HostileNode {
    /// The peer's machine.
    pub index: usize,
    talks: Vec<Talk>,
    /// The number of actions that the peer will still take.
    left: u32,
}

struct Talk {
    server: usize,
    from: SocketAddr,
    core: Conversation,
    /// The server's identifier of the conversation, and the export, when they are known.
    known: Option<u64>,
    export: Option<u64>,
    sequence: u64,
}

/// Returns how many bytes may answer a datagram of this peer.
pub fn answered_by(datagram: &[u8]) -> Option<usize> {
    let number = u64::from_be_bytes(datagram.get(12..20)?.try_into().ok()?);
    (number >> 63 != 0).then_some((number & 0xf_ffff) as usize)
}

impl HostileNode {
    /// Makes a peer on this machine, which the servers do not know yet.
    pub fn new(index: usize, g: &mut Ground) -> HostileNode {
        let mut talks = Vec::new();
        for (server, host) in
            (0..g.plan.servers).flat_map(|server| (0..HOSTS).map(move |host| (server, host)))
        {
            let from = address_in_network(index, host, 50_000 + server as u16);
            g.net.bind(from);
            let core = Conversation::new(g.plan.client.clone(), g.rng.next() | 1);
            talks.push(Talk { server, from, core, known: None, export: None, sequence: 1 });
        }
        HostileNode { index, talks, left: 2_000 }
    }

    /// Takes an action, and plans the next one.
    pub fn act(&mut self, g: &mut Ground) {
        if g.healed || self.left == 0 {
            return;
        }
        self.left -= 1;
        let now = Time::from_nanos(g.now() + 1);
        let at = g.rng.index(self.talks.len());
        let talk = &mut self.talks[at];
        if g.rng.chance(20_000) || talk.export.is_none() && g.rng.chance(100_000) {
            // The peer begins another conversation from this address.
            let core = Conversation::new(g.plan.client.clone(), g.rng.next() | 1);
            *talk = Talk { core, known: None, export: None, sequence: 1, ..*talk };
        }
        match (talk.known, talk.export) {
            (Some(id), Some(export)) => talk.harm(g, id, export),
            (_, None) => talk.core.bind(now, NAME, 0),
            // The peer calls an export that does not exist. The call is refused, and then the conversation is
            // known.
            (None, Some(_)) => {
                let call = Call { export: 1, procedure: 1, deadline: None, trace: None, token: 1 };
                let _ = talk.core.start(|| now, &call, &mut Vec::new());
            }
        }
        talk.flush(g, now);
        let pause = g.rng.spread(100 * MICROS, 200 * MILLIS);
        g.net.after(pause, Event::Harm);
    }

    /// Delivers a datagram to the peer.
    pub fn receive(&mut self, g: &mut Ground, from: SocketAddr, to: SocketAddr, bytes: Vec<u8>) {
        let now = Time::from_nanos(g.now() + 1);
        if let Some(talk) =
            self.talks.iter_mut().find(|talk| talk.from == to && address(talk.server, 7000) == from)
        {
            g.server_reached(talk.server, to);
            let export = &mut talk.export;
            talk.core.receive(now, &bytes, &mut |told| {
                if let Told::Bound { answer: Ok(bound), .. } = told {
                    *export = Some(bound.export);
                }
            });
            talk.flush(g, now);
        }
        g.net.recycle(bytes);
    }
}

impl Talk {
    fn flush(&mut self, g: &mut Ground, now: Time) {
        while let Some(len) = self.core.transmit(now, &mut g.scratch) {
            let id = g.scratch[4..12].try_into().map_or(0, u64::from_be_bytes);
            self.known = if id == 0 { self.known } else { Some(id) };
            g.send(self.from, address(self.server, 7000), len);
        }
    }

    /// Sends one datagram of as many frames as fit.
    fn harm(&mut self, g: &mut Ground, id: u64, export: u64) {
        self.sequence += 1;
        let (sequence, most) = (self.sequence, g.plan.server.max_activities);
        let many = g.rng.within(1, 20) as u32;
        let anywhere = |g: &mut Ground| g.rng.below(u64::from(most)) as u32;
        let (mut frames, mut selects) = (Vec::new(), many as usize);
        match g.rng.below(7) {
            // A fragment with the highest offset that is allowed, of the highest activity.
            0 => fragment(&mut frames, most - 1, sequence, export, TOTAL - 4, 4),
            1 => {
                (0..many).for_each(|_| fragment(&mut frames, anywhere(g), sequence, export, TOTAL - 400, 40))
            }
            // One call with gaps, and questions about it that come more often than the answer can change.
            2 => {
                (0..20).for_each(|n| fragment(&mut frames, PROBED, 1 << 40, export, 8 + 16 * n, 4));
                selects = 20;
            }
            3 => {
                (0..50).for_each(|_| about(&mut frames, PROBE, PROBED, 1 << 40, &[]));
                selects = 1;
            }
            4 => (0..many).for_each(|_| about(&mut frames, CANCEL, anywhere(g), sequence, &[])),
            // Frames of exchanges (signals and streams) of calls that no server executes.
            5 => (0..many).for_each(|_| {
                let kind = g.rng.pick(&[DATA, CREDIT, STOP]);
                about(&mut frames, kind, anywhere(g), sequence, &[0; 24]);
            }),
            _ => {
                let low = g.rng.next() >> 1;
                frames.extend([ACK, 0, 0, 12]);
                frames.extend(low.to_be_bytes());
                frames.extend([0, 0, 4, 176]);
                (0..many).for_each(|_| about(&mut frames, PROBE, anywhere(g), sequence, &[]));
            }
        }
        // The answers may have three times the bytes, one datagram in addition, and a SELECT frame for each
        // call that the datagram asks about.
        let len = 28 + frames.len();
        let answers = (3 * len + 1200 + 300 * selects) as u64;
        let number = 1 << 63 | (g.rng.next() >> 1 & !0xf_ffff) | answers;
        let local = g.plan.is_local();
        let mut datagram = vec![1, u8::from(local), 0, 0];
        datagram.extend(id.to_be_bytes());
        datagram.extend(number.to_be_bytes());
        datagram.extend(frames);
        let tag = if local { len as u64 } else { xxh3_64(&datagram) };
        datagram.extend(tag.to_be_bytes());
        g.scratch[..len].copy_from_slice(&datagram);
        g.net.faults.hostile += 1;
        g.send(self.from, address(self.server, 7000), len);
    }
}

/// Appends a frame about a call.
fn about(frames: &mut Vec<u8>, kind: u8, activity: u32, sequence: u64, more: &[u8]) {
    frames.extend([kind, if kind == CALL { 2 } else { 0 }]);
    frames.extend((16 + more.len() as u16).to_be_bytes());
    frames.extend(activity.to_be_bytes());
    frames.extend([0; 4]);
    frames.extend(sequence.to_be_bytes());
    frames.extend(more);
}

/// Appends a fragment of a call's arguments.
fn fragment(frames: &mut Vec<u8>, activity: u32, sequence: u64, export: u64, offset: u32, len: usize) {
    let mut more = export.to_be_bytes().to_vec();
    more.extend([0, 0, 0, 1]);
    more.extend(TOTAL.to_be_bytes());
    more.extend(offset.to_be_bytes());
    more.resize(more.len() + len, 0);
    about(frames, CALL, activity, sequence, &more);
}
