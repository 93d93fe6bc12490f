//! The connections of a server: which packet is a new request, which comes again, and what is answered.
//! Without sockets and threads.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use farcall::Time;
use farcall::env::Env;
use farcall::host::Host;
use farcall::work;

use super::places::{Idle, Places};
use super::request::Request;
use super::subsystems::Subsystems;
use crate::packet::{self, Header, INIT1_OPEN, INIT1_SECURE, INIT2_BYTES, NAK, NO_CONNECTION};

/// There are this many times fewer places for binds that no request has followed than for other connections.
const UNPROVEN_SHARE: usize = 4;

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
    /// The places of connections whose clients have sent a request: they have the handle, so they receive at
    /// their addresses.
    proven: Places,
    /// The places of binds that no request has followed. Anybody can send them in anybody's name.
    unproven: Places,
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
    /// Whether the client has sent a request.
    is_proven: bool,
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
        let (proven, unproven) = (Places::new(most), Places::new(most / UNPROVEN_SHARE));
        Connections { env, proven, unproven, all: HashMap::new(), binds: HashMap::new() }
    }

    /// Decides on a packet.
    pub fn receive(&mut self, packet: &[u8], from: SocketAddr, subsystems: &Subsystems) -> Action {
        work::steps(1 + packet.len() / 16);
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
            if !self.employ(header.remote) {
                return Action::Nothing;
            }
            let Some(connection) = self.all.get_mut(&header.remote) else { return Action::Nothing };
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
            is_proven: false,
            reply: None,
            used: self.env.now(),
        };
        self.unproven.take(connection.host());
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
        let places = if connection.is_proven { &mut self.proven } else { &mut self.unproven };
        places.rest(connection.host(), (connection.used, request.handle));
        let reply = match request.is_bind() {
            // Whatever the procedure returned, as in RPC2.
            true => connection.packet(request.handle, packet::INIT2, 0, &[0; INIT2_BYTES], request.timestamp),
            false => connection.packet(request.handle, packet::REPLY, code, body, request.timestamp),
        };
        connection.reply = Some(reply.clone());
        Some(reply)
    }

    /// Notes that an idle connection has a request to execute. With its first request it takes the place of
    /// a proven one. Returns false if there is no such place, because all connections are in use.
    fn employ(&mut self, handle: u32) -> bool {
        let Some(connection) = self.all.get(&handle) else { return false };
        let (host, idle) = (connection.host(), connection.idle(handle));
        if connection.is_proven {
            idle.inspect(|idle| self.proven.work(host, *idle));
            return true;
        }
        if self.proven.is_full() {
            let Some(victim) = self.proven.victim() else { return false };
            self.forget(victim);
        }
        self.unproven.leave(host, idle);
        self.proven.take(host);
        if let Some(connection) = self.all.get_mut(&handle) {
            connection.is_proven = true;
        }
        true
    }

    /// Returns a free handle, after room has been made for one more bind. Returns `None` if there is none:
    /// the procedures of all binds are being executed.
    ///
    /// A bind ends no connection whose client has sent a request, because anybody can send binds in the name
    /// of any host.
    fn make_room(&mut self) -> Option<u32> {
        if self.unproven.is_full() {
            let victim = self.unproven.victim()?;
            self.forget(victim);
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

    fn forget(&mut self, handle: u32) {
        let Some(gone) = self.all.remove(&handle) else { return };
        let places = if gone.is_proven { &mut self.proven } else { &mut self.unproven };
        places.leave(gone.host(), gone.idle(handle));
        self.binds.remove(&(gone.client, gone.remote, gone.uniquefier));
    }
}

impl Connection {
    fn host(&self) -> Host {
        Host::at(self.client.ip())
    }

    /// Returns the connection's entry among the idle ones, if it is idle.
    fn idle(&self, handle: u32) -> Option<Idle> {
        (!self.is_running).then_some((self.used, handle))
    }

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

#[cfg(test)]
mod tests {
    use farcall::System;

    use super::*;

    /// A table whose subsystem 7 has no NEW_CONNECTION procedure.
    fn table(most: usize) -> (Connections, Subsystems) {
        (Connections::new(Arc::new(System), most), Subsystems::without_procedures(7))
    }

    fn bind(table: &mut (Connections, Subsystems), from: &str) -> u32 {
        let header = Header { local: 1, opcode: INIT1_OPEN, subsystem: 7, ..Header::default() };
        let mut packet = Vec::new();
        header.write(&packet::bind_body(b"somebody"), &mut packet);
        match table.0.receive(&packet, from.parse().unwrap(), &table.1) {
            Action::Send(answer) => Header::parse(&answer).unwrap().0.local,
            _ => 0,
        }
    }

    /// Sends the first request of a connection, and ends it. Returns whether the connection is known.
    fn call(table: &mut (Connections, Subsystems), from: &str, handle: u32) -> bool {
        let header = Header { remote: handle, local: 1, opcode: 1, subsystem: 7, ..Header::default() };
        let mut packet = Vec::new();
        header.write(&[], &mut packet);
        match table.0.receive(&packet, from.parse().unwrap(), &table.1) {
            Action::Run(request) => table.0.end(&request, 0, &[]).is_some(),
            _ => false,
        }
    }

    #[test]
    fn a_bind_takes_as_few_steps_with_four_thousand_connections_as_with_few() {
        let steps = |most: usize| {
            let mut table = table(most);
            for number in 0..most {
                let from = format!("10.{}.{}.1:1000", number / 250, number % 250);
                let handle = bind(&mut table, &from);
                assert!(call(&mut table, &from, handle));
            }
            for number in 0..most {
                bind(&mut table, &format!("11.{}.{}.1:1000", number / 250, number % 250));
            }
            let before = table.0.proven.steps + table.0.unproven.steps;
            for number in 0..100 {
                bind(&mut table, &format!("12.0.0.{number}:1000"));
            }
            assert_eq!(table.0.all.len(), most + most / UNPROVEN_SHARE);
            assert_eq!(table.0.all.len(), table.0.binds.len());
            table.0.proven.steps + table.0.unproven.steps - before
        };
        assert_eq!((steps(8), steps(4096)), (300, 300));
    }

    #[test]
    fn who_has_the_addresses_of_a_network_is_one_host() {
        for [many, other] in [["2001:db8::", "2001:db8:0:1::1"], ["::ffff:10.0.0.1", "10.0.0.2"]] {
            let mut table = table(16);
            let honest = format!("[{other}]:1000").replace("[10.0.0.2]", "10.0.0.2");
            let handle = bind(&mut table, &honest);
            for number in 1..=9 {
                let from = match many.ends_with("::") {
                    true => format!("[{many}{number}]:1000"),
                    false => format!("[{many}]:{number}"),
                };
                bind(&mut table, &from);
            }
            assert!(call(&mut table, &honest, handle), "the binds of {many} have ended one another");
        }
    }

    #[test]
    fn a_connection_in_use_makes_way_for_nobody() {
        let mut table = table(2);
        let client = |number: usize| format!("10.0.0.{number}:1000");
        let handles: Vec<u32> = (1..=3)
            .map(|number| {
                let handle = bind(&mut table, &client(number));
                let header = Header { remote: handle, local: 1, opcode: 1, ..Header::default() };
                let mut packet = Vec::new();
                header.write(&[], &mut packet);
                let action = table.0.receive(&packet, client(number).parse().unwrap(), &table.1);
                assert_eq!(matches!(action, Action::Run(_)), number < 3, "both places are in use");
                handle
            })
            .collect();
        assert!(handles.iter().all(|handle| table.0.all.contains_key(handle)));
    }
}
