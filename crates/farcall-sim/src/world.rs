//! One run of the simulator: machines, the network between them, faults, and the checks at the end.

mod restore;

use farcall_proto::Mutant;
#[cfg(feature = "soak")]
use farcall_proto::secure::audit;

use crate::client::ClientNode;
use crate::ground::{Event, Ground};
use crate::hostile::HostileNode;
#[cfg(feature = "soak")]
use crate::interloper::Interloper;
use crate::net::{Faults, MILLIS, Nanos, SECS, Step, host};
use crate::oracle::{Outcomes, Violation};
use crate::plan::Plan;
use crate::rng::Rng;
use crate::seals::{self, Seals, Watched};
use crate::server::ServerNode;

/// The report of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The run's seed.
    pub seed: u64,
    /// Calls made.
    pub calls: u64,
    /// The outcomes of the calls.
    pub outcomes: Outcomes,
    /// The faults that happened.
    pub faults: Faults,
    /// Datagrams sent.
    pub datagrams: u64,
    /// Virtual time that passed.
    pub elapsed: Nanos,
    /// The first invariant that did not hold.
    pub violation: Option<Violation>,
    /// What happened in the run to seals and keys.
    pub seals: Seals,
    /// A hash of every datagram delivered and everything else that happened.
    pub trace_hash: u64,
}

/// How long everything takes to settle after the faults have ended, in virtual time.
const SETTLED: Nanos = 300 * SECS;

/// How long a server without work keeps ticket keys: a key seals for ten minutes and opens for ten more.
const TICKET_KEYS_KEPT: Nanos = 1200 * SECS;

/// The longest time that a call takes after the faults and the last procedure have ended.
const ENDS_WITHIN: Nanos = 60 * SECS;

/// The largest datagram that passes a path which has become narrow, in bytes: questions and short calls do,
/// and the smallest datagram of a long call does not.
const NARROW: usize = 1_072;

/// The longest time that a call takes after its server has died.
const NOTICED_WITHIN: Nanos = 120 * SECS;

/// Runs `calls` calls under the faults that `seed` decides.
pub fn run(seed: u64, calls: u64, mutant: Mutant, verbose: bool) -> Report {
    let _watched = Watched::begin();
    let mut world = World::new(Origin { seed, calls, mutant }, verbose);
    world.run(u64::MAX);
    world.report()
}

/// Everything that determines a run.
#[derive(Clone, Copy)]
struct Origin {
    seed: u64,
    calls: u64,
    mutant: Mutant,
}

struct World {
    origin: Origin,
    g: Ground,
    servers: Vec<ServerNode>,
    clients: Vec<ClientNode>,
    hostile: Option<HostileNode>,
    #[cfg(feature = "soak")]
    interloper: Option<Interloper>,
    healing: bool,
    /// When the faults ended.
    healed_at: Nanos,
    /// When the last datagram arrives that was sent before the faults ended.
    last_late: Nanos,
    /// Whether the servers were idle at the last look.
    was_idle: bool,
    /// The number of events so far.
    steps: u64,
    /// Whether the restoration of a server was tried. It is tried at most once.
    restored: bool,
}

impl World {
    /// Makes a world whose machines have started.
    fn new(origin: Origin, verbose: bool) -> World {
        let mut rng = Rng::new(origin.seed);
        let plan = Plan::draw(&mut rng, origin.mutant);
        if verbose {
            println!("{plan:#?}");
        }
        seals::begin(&plan);
        let mut g = Ground::new(plan, rng, origin.calls, verbose);
        let servers = (0..g.plan.servers).map(|i| ServerNode::new(i, &mut g)).collect();
        let clients = (0..g.plan.clients).map(|i| ClientNode::new(g.plan.servers + i, &mut g)).collect();
        let hostile = g.plan.hostile.then(|| HostileNode::new(g.hostile(), &mut g));
        let mut world = World {
            origin,
            servers,
            clients,
            hostile,
            #[cfg(feature = "soak")]
            interloper: Interloper::new(&g),
            g,
            healing: false,
            healed_at: 0,
            last_late: 0,
            was_idle: false,
            steps: 0,
            restored: false,
        };
        world.start();
        world
    }

    fn start(&mut self) {
        for server in &mut self.servers {
            server.start(&mut self.g);
        }
        for client in &mut self.clients {
            client.start(&mut self.g);
        }
        if self.hostile.is_some() {
            self.g.net.after(0, Event::Harm);
        }
    }

    /// Runs until `until` events have happened, or to the end.
    fn run(&mut self, until: u64) {
        let most = 200_000 + self.origin.calls * 2_000;
        while self.steps < until {
            let Some((now, step)) = self.g.net.step() else { return self.end() };
            self.steps += 1;
            let steps = self.steps;
            if steps > most {
                self.g.oracle.violate("progress", now, || format!("{steps} steps, the next is {step:?}"));
            }
            if self.g.healed && matches!(step, Step::Datagram { .. } | Step::Event(Event::Wake(_))) {
                self.must_be_quiet(now);
            }
            self.step(step);
            #[cfg(feature = "soak")]
            self.check_seals(now);
            if !self.g.healed && self.g.budget == 0 && !self.healing {
                self.healing = true;
                let delay = self.g.rng.spread(MILLIS, 20 * SECS);
                self.g.net.after(delay, Event::Heal);
            }
            if self.g.oracle.violation.is_some() {
                return;
            }
        }
    }

    /// Checks that no nonce was used twice under one key, and that nothing opened which nobody has sealed.
    #[cfg(feature = "soak")]
    fn check_seals(&mut self, now: Nanos) {
        if self.g.plan.secret.is_none() {
            return;
        }
        let counts = audit::counts();
        // A restored server uses numbers again (docs/protocol.md 7.5).
        if counts.reused > 0 && !self.restored {
            self.g.oracle.violate("no-nonce-is-used-twice", now, || format!("{counts:?}"));
        }
        if counts.forged > 0 {
            self.g.oracle.violate("no-forgery-opens", now, || format!("{counts:?}"));
        }
    }

    /// Checks the world after the last event.
    fn end(&mut self) {
        let now = self.g.now();
        self.g.oracle.all_ended("every-call-ends", now, None, Nanos::MAX);
        self.servers.iter().for_each(|s| s.must_be_idle(&mut self.g));
        self.clients.iter().for_each(|c| c.must_be_idle(&mut self.g));
    }

    fn step(&mut self, step: Step<Event>) {
        match step {
            Step::Datagram { from, to, bytes } => {
                self.g.note_arrival(from, to, &bytes);
                let node = host(to);
                if let Some(hostile) = self.hostile.as_mut().filter(|hostile| hostile.index == node) {
                    return hostile.receive(&mut self.g, from, to, bytes);
                }
                #[cfg(feature = "soak")]
                if node < self.servers.len()
                    && let Some(interloper) = &mut self.interloper
                    && !interloper.see(&mut self.g, from, to, &bytes)
                {
                    return self.g.net.recycle(bytes);
                }
                match node.checked_sub(self.servers.len()) {
                    None => {
                        if let Some(server) = self.servers.iter_mut().find(|server| server.address == to) {
                            server.receive(&mut self.g, from, bytes);
                        }
                    }
                    Some(client) => self.clients[client].receive(&mut self.g, from, bytes),
                }
            }
            Step::Refused { sender, peer, quoted, forged, is_closed } => {
                self.g.note(&[9, u64::from(sender.port())], || {
                    format!("{sender} hears that nobody is at {peer}")
                });
                let client = host(sender).checked_sub(self.servers.len());
                if let Some(client) = client.and_then(|client| self.clients.get_mut(client)) {
                    client.refused(&mut self.g, host(peer), is_closed.then_some(&*quoted), forged);
                }
            }
            Step::Event(event) => self.event(event),
        }
    }

    fn event(&mut self, event: Event) {
        let servers = self.servers.len();
        let g = &mut self.g;
        match event {
            Event::Wake(node) if node < servers => self.servers[node].wake(g),
            Event::Wake(node) => self.clients[node - servers].wake(g),
            Event::Act { client, life } => self.clients[client - servers].act(g, life),
            Event::Cancel { client, call } => self.clients[client - servers].cancel(g, call),
            Event::Inside { client, call } => self.clients[client - servers].act_inside(g, call),
            Event::Done { server, job } => self.servers[server].done(g, job),
            #[cfg(feature = "soak")]
            Event::Compute(server) => self.servers[server].compute(g),
            Event::Chaos if !g.healed => self.chaos(),
            Event::Chaos => {}
            Event::Crash(_) if g.healed => {}
            Event::Crash(server) if server < servers => self.crash_server(server),
            Event::Crash(node) => self.crash_client(node - servers),
            Event::Harm => self.hostile.iter_mut().for_each(|hostile| hostile.act(g)),
            Event::Restart(node) => self.restart(node),
            Event::Resume(node) => self.resume(node),
            Event::Move(place) if self.servers.len() > 1 && !self.g.healed => {
                let server = self.servers.iter().position(|server| host(server.address) == place);
                self.move_address(server.unwrap_or(place));
            }
            Event::Move(_) => {}
            Event::Heal => self.heal(),
            Event::Judge => self.judge(),
        }
    }

    /// Causes a fault of a machine or a path.
    fn chaos(&mut self) {
        let g = &mut self.g;
        let (servers, clients) = (self.servers.len(), self.clients.len());
        let (server, client) = (g.rng.index(servers), g.rng.index(clients));
        let node = g.rng.index(servers + clients);
        if g.plan.is_brief() && g.rng.chance(950_000) {
            return self.crash_client(client);
        }
        if servers > 1 && g.rng.chance(g.plan.moves) {
            return self.move_address(server);
        }
        if g.rng.chance(g.plan.pauses) {
            return self.stop(node, true);
        }
        if g.rng.chance(g.plan.restorations) && !self.restored {
            return self.restore_server(server);
        }
        match g.rng.below(100) {
            0..20 => self.cut(server, servers + client),
            20..40 => self.crash_server(server),
            40..48 => self.crash_client(client),
            48..68 => self.stop(node, false),
            68..83 if self.clients[client].alive => {
                g.net.faults.address_changes += 1;
                self.clients[client].move_away(g);
            }
            83..90 => {
                g.net.faults.reexports += 1;
                self.servers[server].export_anew(g);
            }
            90..95 => {
                g.net.faults.mtu_changes += 1;
                let (from, to) = if g.rng.chance(500_000) {
                    (server, servers + client)
                } else {
                    (servers + client, server)
                };
                // Some paths become narrower than the protocol's smallest long datagram, and stay so.
                let mtu = g.rng.spread(1200, 66_000) as usize;
                g.net.path(from, to).mtu = if mtu < 2_000 { NARROW } else { mtu };
            }
            _ => self.drain(server),
        }
    }

    /// Cuts one direction between two hosts for a while, and sometimes both directions.
    fn cut(&mut self, server: usize, client: usize) {
        let g = &mut self.g;
        let until = g.now() + g.rng.spread(10 * MILLIS, 120 * SECS);
        let ways = g.rng.within(1, 3);
        for (way, from, to) in [(1, server, client), (2, client, server)] {
            if ways & way != 0 {
                g.net.faults.partitions += 1;
                g.net.path(from, to).cut_until = until;
            }
        }
        g.note(&[10, server as u64, client as u64], || {
            format!("machines {server} and {client} are cut ({ways})")
        });
    }

    fn crash_server(&mut self, server: usize) {
        let g = &mut self.g;
        if self.servers[server].core.is_none() {
            return;
        }
        g.net.faults.server_crashes += 1;
        g.note(&[11, server as u64], || format!("server {server} crashes"));
        self.servers[server].crash(g);
        let away = g.rng.spread(MILLIS, 400 * SECS);
        g.net.after(away, Event::Restart(server));
        // Often no client notices before the next server has been up for long.
        if g.rng.chance(300_000) {
            let until = g.now() + away.saturating_mul(g.rng.within(1, 40));
            let host = host(self.servers[server].address);
            for client in 0..self.clients.len() {
                g.net.path(host, self.servers.len() + client).cut_until = until;
            }
        }
    }

    fn crash_client(&mut self, client: usize) {
        let g = &mut self.g;
        let node = self.servers.len() + client;
        if !self.clients[client].alive {
            return;
        }
        g.net.faults.client_crashes += 1;
        g.note(&[12, node as u64], || format!("client {node} crashes"));
        self.clients[client].crash(g);
        let away = g.rng.spread(MILLIS, if g.plan.is_brief() { SECS } else { 20 * SECS });
        g.net.after(away, Event::Restart(node));
    }

    /// Shuts a server down in order: the server finishes its calls, then ends.
    fn drain(&mut self, server: usize) {
        let node = &mut self.servers[server];
        node.drain(&mut self.g);
        self.g.note(&[13, server as u64], || format!("server {server} drains"));
        if node.busy() == 0 && self.servers[server].core.is_some() {
            self.crash_server(server);
        }
    }

    /// Exchanges the addresses of two servers. Both stay alive if they are, as with a virtual address or a
    /// rolling update. The address may be exchanged back soon.
    fn move_address(&mut self, server: usize) {
        let (servers, clients) = (self.servers.len(), self.clients.len());
        let other = (server + 1) % servers;
        let g = &mut self.g;
        g.net.faults.address_moves += 1;
        let addresses = [self.servers[server].address, self.servers[other].address];
        g.note(&[21, server as u64, other as u64], || {
            format!("servers {server} and {other} have changed places")
        });
        for (which, address) in [other, server].into_iter().zip(addresses) {
            let node = &mut self.servers[which];
            node.address = address;
            g.net.unbind(address);
            if node.core.is_some() {
                g.net.bind(address);
            }
        }
        if g.rng.chance(300_000) {
            let later = g.rng.spread(MILLIS, 10 * SECS);
            g.net.after(later, Event::Move(host(addresses[0])));
        }
        // Often the datagrams of both are lost until the network has learned the new addresses.
        if g.rng.chance(500_000) {
            let until = g.now() + g.rng.spread(MILLIS, 10 * SECS);
            for (host, client) in
                [server, other].into_iter().flat_map(|s| (0..clients).map(move |c| (s, servers + c)))
            {
                g.net.path(host, client).cut_until = until;
            }
        }
    }

    /// Stops a process for a while. Its machine's clock continues, unless the machine itself is paused.
    fn stop(&mut self, node: usize, pause: bool) {
        let (stopped, clock) = match node.checked_sub(self.servers.len()) {
            None => {
                let server = &mut self.servers[node];
                (&mut server.stopped, &mut server.clock)
            }
            Some(client) => {
                let client = &mut self.clients[client];
                (&mut client.stopped, &mut client.clock)
            }
        };
        if std::mem::replace(stopped, true) {
            return;
        }
        if pause {
            clock.pause(self.g.net.now());
            self.g.net.faults.pauses += 1;
        } else {
            self.g.net.faults.clock_steps += 1;
        }
        self.g.note(&[14, node as u64], || format!("machine {node} is stopped, with its clock: {pause}"));
        let away = self.g.rng.spread(MILLIS, 100 * SECS);
        self.g.net.after(away, Event::Resume(node));
    }

    fn resume(&mut self, node: usize) {
        let g = &mut self.g;
        g.note(&[15, node as u64], || format!("machine {node} goes on"));
        match node.checked_sub(self.servers.len()) {
            None if self.servers[node].stopped => self.servers[node].resume(g),
            Some(client) if self.clients[client].stopped => self.clients[client].resume(g),
            _ => {}
        }
    }

    fn restart(&mut self, node: usize) {
        let g = &mut self.g;
        let now = g.now();
        g.note(&[16, node as u64], || format!("machine {node} is back"));
        let reboot = g.rng.chance(300_000);
        if let Some(client) = node.checked_sub(self.servers.len()) {
            let client = &mut self.clients[client];
            if !client.alive {
                if reboot {
                    client.clock.reboot(&mut g.rng, now);
                }
                client.start(g);
            }
            return;
        }
        let server = &mut self.servers[node];
        if server.core.is_some() {
            return;
        }
        let (died, noticed) = (server.dead_since, now.saturating_sub(NOTICED_WITHIN));
        // If a server has moved meanwhile, another one refuses calls to it.
        let moved = g.net.faults.address_moves > 0;
        if !moved && noticed > died && self.clients.iter().all(|c| !c.stopped && c.resumed_at < died) {
            g.oracle.all_ended("a-dead-server-is-noticed", now, Some(node), noticed);
        }
        if reboot {
            server.clock.reboot(&mut g.rng, now);
        }
        server.start(g);
    }

    /// Ends the faults: paths are clean and machines are up. Datagrams under way still arrive.
    fn heal(&mut self) {
        let nodes = self.servers.len() + self.clients.len();
        // In some runs the calls that are under way meet paths that have become narrow. It is derived, not
        // drawn, so that other runs stay the same.
        let narrow = !self.g.plan.calm && self.g.plan.burst % 8 == 3;
        for path in self.g.net.paths() {
            path.heal();
            path.mtu = if narrow { NARROW } else { path.mtu };
        }
        for node in 0..nodes {
            self.resume(node);
            self.restart(node);
        }
        self.g.note(&[17], || "faults end".into());
        (self.g.healed, self.healed_at) = (true, self.g.now());
        self.last_late = self.g.net.last_arrival();
        self.g.net.after(ENDS_WITHIN, Event::Judge);
    }

    /// Checks that every call has ended, once the servers were idle for long enough.
    fn judge(&mut self) {
        let now = self.g.now();
        let learns_within = ENDS_WITHIN + self.g.oracle.silence.1;
        if let Some(since) = now.checked_sub(learns_within).filter(|since| *since > self.healed_at) {
            self.servers.iter().for_each(|server| server.must_know_ended(&mut self.g, since));
        }
        let idle = self.servers.iter().all(|s| s.busy() == 0) && now - self.g.last_done > ENDS_WITHIN;
        if idle && self.was_idle {
            return self.g.oracle.all_ended("every-call-ends", now, None, Nanos::MAX);
        }
        self.was_idle = idle;
        self.g.net.after(ENDS_WITHIN, Event::Judge);
    }

    /// Checks that nothing happens any more, after the last delayed datagram has arrived and its effects are
    /// over.
    fn must_be_quiet(&mut self, now: Nanos) {
        let hold = self.g.plan.server.hold.as_nanos() as Nanos;
        let keys = if self.g.plan.scheme().is_some() { TICKET_KEYS_KEPT } else { 0 };
        // Until the faults end, clients call; and calls that are never executed have effects too.
        let cause = self.healed_at.max(self.last_late).max(self.g.last_done);
        let last = cause + hold + keys + SETTLED;
        if now > last && self.servers.iter().all(|s| s.busy() == 0) && self.was_idle {
            self.g.oracle.violate("idle-is-silent", now, || {
                format!("something happens {} s after the last cause", (now - last) / SECS)
            });
        }
    }

    fn report(mut self) -> Report {
        for server in &self.servers {
            server.count_evictions(&mut self.g);
        }
        Report {
            seed: self.origin.seed,
            calls: self.g.oracle.calls.len() as u64,
            outcomes: self.g.oracle.outcomes(),
            faults: self.g.net.faults,
            datagrams: self.g.sent,
            elapsed: self.g.now(),
            violation: self.g.oracle.violation.take(),
            seals: seals::seen(),
            trace_hash: self.g.hash(),
        }
    }
}
