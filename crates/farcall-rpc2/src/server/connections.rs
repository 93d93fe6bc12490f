//! The connections of a server: which packet is a new request, which comes again, and what is answered.
//! Without sockets and threads.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use farcall::Time;
use farcall::env::Env;

use super::request::Request;
use super::subsystems::Subsystems;
use crate::packet::{self, Header, INIT1_OPEN, INIT1_SECURE, INIT2_BYTES, NAK, NO_CONNECTION};

/// What a server does with a packet.
pub(super) enum Action {
    Nothing,
    /// It sends this packet to the sender.
    Send(Arc<[u8]>),
    Run(Request),
}

/// All connections.
pub(super) struct Connections {
    env: Arc<dyn Env>,
    most: usize,
    /// By the server's handle.
    all: HashMap<u32, Connection>,
    /// The handle of a connection by what its client sent with the bind: address, handle, uniquefier.
    binds: HashMap<(SocketAddr, u32, u32), u32>,
}

struct Connection {
    client: SocketAddr,
    /// The client's handle.
    remote: u32,
    uniquefier: u32,
    subsystem: u32,
    /// The number of the next request.
    next: u32,
    /// Whether a request is being executed, or waits for that.
    is_running: bool,
    /// The last reply.
    reply: Option<Arc<[u8]>>,
    used: Time,
}

impl Connections {
    pub fn new(env: Arc<dyn Env>, most: usize) -> Connections {
        Connections { env, most, all: HashMap::new(), binds: HashMap::new() }
    }

    /// Decides on a packet.
    pub fn receive(&mut self, packet: &[u8], from: SocketAddr, subsystems: &Subsystems) -> Action {
        let Some((header, body)) = Header::parse(packet) else { return Action::Nothing };
        if header.remote == 0 {
            return self.bind(&header, body, from, subsystems);
        }
        // A packet without a connection gets no answer, so that two servers do not answer each other without
        // end.
        if header.opcode == NAK || header.local == NO_CONNECTION {
            return Action::Nothing;
        }
        let now = self.env.now();
        let known = self.all.get_mut(&header.remote);
        let Some(connection) = known.filter(|known| known.client == from && known.remote == header.local)
        else {
            return Action::Send(nak(&header));
        };
        if header.opcode <= 0 {
            return Action::Nothing;
        }
        let is_next = header.sequence == connection.next;
        if is_next && !connection.is_running {
            connection.used = now;
            connection.is_running = true;
            connection.next = connection.next.wrapping_add(2);
            connection.reply = None;
            return Action::Run(Request {
                from,
                subsystem: connection.subsystem,
                opcode: header.opcode,
                body: body.to_vec(),
                handle: header.remote,
                timestamp: header.timestamp,
            });
        }
        // As RPC2 does: requests ahead of the sequence can come by multicast.
        let ahead = header.sequence.wrapping_sub(connection.next).cast_signed();
        if ahead > 2 && header.sequence.is_multiple_of(2) {
            return Action::Send(nak(&header));
        }
        let comes_again = header.sequence == connection.next.wrapping_sub(2);
        match &connection.reply {
            // The first request can come while NEW_CONNECTION runs.
            _ if connection.is_running && (comes_again || is_next) => {
                Action::Send(connection.packet(header.remote, packet::BUSY, 0, &[], header.timestamp))
            }
            Some(reply) if comes_again => Action::Send(echoing(reply, header.timestamp)),
            _ => Action::Nothing,
        }
    }

    fn bind(&mut self, header: &Header, body: &[u8], from: SocketAddr, subsystems: &Subsystems) -> Action {
        if INIT1_SECURE.contains(&header.opcode)
            || header.opcode == INIT1_OPEN && !subsystems.has(header.subsystem)
        {
            let refusal = Header {
                remote: header.local,
                local: 0,
                flags: 0,
                opcode: packet::INIT2,
                return_code: packet::NOT_AUTHENTICATED,
                ..*header
            };
            let mut out = Vec::new();
            refusal.write(&[0; INIT2_BYTES], &mut out);
            return Action::Send(out.into());
        }
        let Some(arguments) = packet::bind_arguments(body).filter(|_| header.opcode == INIT1_OPEN) else {
            return Action::Nothing;
        };
        let key = (from, header.local, header.uniquefier);
        if let Some(handle) = self.binds.get(&key)
            && let Some(connection) = self.all.get(handle)
        {
            return match &connection.reply {
                Some(reply) if connection.next == 0 => Action::Send(echoing(reply, header.timestamp)),
                None if connection.next == 0 => {
                    Action::Send(connection.packet(*handle, packet::BUSY, 0, &[], header.timestamp))
                }
                _ => Action::Nothing,
            };
        }
        let Some(handle) = self.make_room() else { return Action::Nothing };
        let connection = Connection {
            client: from,
            remote: header.local,
            uniquefier: header.uniquefier,
            subsystem: header.subsystem,
            next: 0,
            is_running: true,
            reply: None,
            used: self.env.now(),
        };
        self.all.insert(handle, connection);
        self.binds.insert(key, handle);
        let request = Request {
            from,
            subsystem: header.subsystem,
            opcode: INIT1_OPEN,
            body: arguments,
            handle,
            timestamp: header.timestamp,
        };
        if subsystems.wants_binds(header.subsystem) {
            return Action::Run(request);
        }
        self.end(&request, 0, &[]).map_or(Action::Nothing, Action::Send)
    }

    /// Ends a request, and returns the packet of its reply. Returns `None` if the connection is gone.
    pub fn end(&mut self, request: &Request, code: i32, body: &[u8]) -> Option<Arc<[u8]>> {
        let connection = self.all.get_mut(&request.handle)?;
        connection.is_running = false;
        connection.used = self.env.now();
        let reply = match request.is_bind() {
            // Whatever the procedure returned, as in RPC2.
            true => connection.packet(request.handle, packet::INIT2, 0, &[0; INIT2_BYTES], request.timestamp),
            false => connection.packet(request.handle, packet::REPLY, code, body, request.timestamp),
        };
        connection.reply = Some(reply.clone());
        Some(reply)
    }

    /// Returns a free handle, after room has been made for one more connection. Returns `None` if all
    /// connections are in use.
    fn make_room(&mut self) -> Option<u32> {
        if self.all.len() >= self.most {
            // One host's binds end its own connections first, not those of other clients.
            let mut by_host: HashMap<IpAddr, usize> = HashMap::new();
            for connection in self.all.values() {
                *by_host.entry(connection.client.ip()).or_default() += 1;
            }
            let idle = self.all.iter().filter(|(_, connection)| !connection.is_running);
            let (handle, _) = idle.max_by_key(|(_, connection)| {
                (by_host.get(&connection.client.ip()), Reverse(connection.used))
            })?;
            let handle = *handle;
            if let Some(gone) = self.all.remove(&handle) {
                self.binds.remove(&(gone.client, gone.remote, gone.uniquefier));
            }
        }
        loop {
            let mut random = [0; 4];
            self.env.entropy(&mut random);
            let handle = u32::from_be_bytes(random);
            if handle != 0 && handle != NO_CONNECTION && !self.all.contains_key(&handle) {
                return Some(handle);
            }
        }
    }
}

impl Connection {
    /// Returns a packet to the client.
    fn packet(&self, handle: u32, opcode: i32, code: i32, body: &[u8], timestamp: u32) -> Arc<[u8]> {
        let header = Header {
            remote: self.remote,
            local: handle,
            flags: 0,
            // Of a bind the answer has the number 0, and BUSY the number before it.
            sequence: if opcode == packet::INIT2 { 0 } else { self.next.wrapping_sub(1) },
            opcode,
            subsystem: self.subsystem,
            return_code: code,
            lamport: 1,
            uniquefier: self.uniquefier,
            timestamp,
        };
        let mut out = Vec::new();
        header.write(body, &mut out);
        out.into()
    }
}

/// Returns a kept reply for a request that came again, with the time at which that copy was sent.
fn echoing(reply: &[u8], timestamp: u32) -> Arc<[u8]> {
    let Some((header, body)) = Header::parse(reply) else { return reply.into() };
    let mut out = Vec::new();
    Header { timestamp, ..header }.write(body, &mut out);
    out.into()
}

/// Returns the packet that tells a client that its connection is not known.
fn nak(header: &Header) -> Arc<[u8]> {
    let mut out = Vec::new();
    let header = Header { remote: header.local, local: NO_CONNECTION, opcode: NAK, ..Header::default() };
    header.write(&[], &mut out);
    out.into()
}
