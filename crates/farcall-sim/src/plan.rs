//! The decisions of a seed before its run: the machines, their limits, the load and the faults.
//!
//! Every run draws its own mixture of faults (swarm testing, Groce et al. 2012), and leaves some out. A fault
//! that is rare in every run hides bugs that need it often. A fault that is frequent in every run hides bugs
//! that need quiet.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use farcall_memory::posted::Faults;
use farcall_proto::{ClientConfig, Mutant, Rule, SameUser, ServerConfig, UserSecret, UserSecrets};

#[cfg(feature = "soak")]
use crate::keys::Keys;
use crate::net::{MICROS, MILLIS, Nanos, Path, SECS};
use crate::rng::Rng;

/// The decisions of one seed.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whether no fault happens and the servers have room. Then every call must return.
    pub calm: bool,
    /// The number of servers.
    pub servers: usize,
    /// The number of clients.
    pub clients: usize,
    /// Whether there is a hostile peer too.
    pub hostile: bool,
    /// The servers' settings.
    pub server: ServerConfig,
    /// The clients' settings.
    pub client: ClientConfig,
    /// The path between any two hosts, before each pair draws its own faults.
    pub path: Path,
    /// How far a clock's rate may be off, in parts per million.
    pub drift: u64,
    /// The chance that a fault of a machine or a path follows a client's action, in parts per million.
    pub chaos: u32,
    /// The most calls that one server executes at once.
    pub workers: usize,
    /// The most calls that wait at one server.
    pub queue: usize,
    /// Calls that are refused by the program that uses the server's protocol, in parts per million.
    pub refuse: u32,
    /// Calls that their callers cancel, in parts per million.
    pub cancel: u32,
    /// Calls that are detached as soon as they are started, in parts per million.
    pub detach: u32,
    /// Calls with a deadline, in parts per million.
    pub deadline: u32,
    /// Calls that take time, in parts per million.
    pub slow: u32,
    /// The longest time that a call takes.
    pub slowest: Nanos,
    /// Arguments or results of more than one datagram, in parts per million.
    pub large: u32,
    /// The most bytes of arguments or of a result.
    pub largest: u64,
    /// The longest ordinary pause between two actions of a client.
    pub pause: Nanos,
    /// Long pauses, up to hours, in parts per million of the actions.
    pub rest: u32,
    /// The most calls that a client starts at once.
    pub burst: u64,
    /// The most calls that a client has outstanding.
    pub open: usize,
    /// Operations that are accesses to memory rather than calls, in parts per million.
    pub memory: u32,
    /// Actions that post writes, in parts per million.
    pub post: u32,
    /// Streams of posted writes that a server remembers.
    pub streams: usize,
    /// Deliberate faults of posted writes.
    pub posting: Faults,
    /// Accesses that are executed only after other calls, in parts per million.
    pub deferred: u32,
    /// Actions in which the process is stopped between reading its clock and sending, in parts per million.
    pub gap: u32,
    /// How often an address moves from one server to another, in parts per million of the faults of machines
    /// and paths.
    pub moves: u32,
    /// Pauses of machines together with their clocks, in parts per million of the faults of machines and
    /// paths.
    pub pauses: u32,
    /// Restorations of a server from a snapshot, in parts per million of the faults of machines and paths.
    pub restorations: u32,
    /// Whether clients reach their servers at a loopback address, and whether servers see clients at one. If
    /// both, they are on one machine; if one, there is a forwarder between.
    pub loopback: (bool, bool),
    /// The keys, if the ends have any. Then every datagram is sealed.
    #[cfg(feature = "soak")]
    pub secret: Option<Keys>,
    /// Whether a server that refuses a ticket sends the refusal with conversation number zero, as another
    /// implementation may.
    pub anonymous: bool,
    /// Calls that follow the end of another at once, in parts per million.
    pub chain: u32,
    /// Calls that have exchanges, in parts per million.
    pub inside: u32,
}

/// The user of all simulated machines. Its servers demand that clients prove that they are its processes.
#[derive(Debug)]
struct OneUser;

/// The address for which clients prove their user, whichever server has it at the moment.
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7);

impl UserSecrets for OneUser {
    fn secrets(&self) -> Result<Vec<UserSecret>, String> {
        Ok(vec![UserSecret::new([7; 16])])
    }
}

/// How often a client crashes in a run with brief lives, in parts per million of its actions.
#[cfg(feature = "soak")]
const BRIEF: u32 = 400_000;

impl Plan {
    /// Returns whether clients crash and come back all the time.
    pub fn is_brief(&self) -> bool {
        #[cfg(feature = "soak")]
        return self.secret.as_ref().is_some_and(|keys| keys.brief);
        #[cfg(not(feature = "soak"))]
        false
    }

    /// Draws a plan from `rng`.
    pub fn draw(rng: &mut Rng, mutant: Mutant) -> Plan {
        let calm = rng.chance(50_000);
        let mut plan = Plan {
            calm,
            servers: rng.within(1, 3) as usize,
            clients: rng.within(1, 4) as usize,
            hostile: rng.chance(200_000),
            server: ServerConfig { mutant, ..ServerConfig::default() },
            client: ClientConfig { mutant, ..ClientConfig::default() },
            path: Path::clean(rng.spread(10 * MICROS, 60 * MILLIS)),
            drift: 100,
            chaos: 0,
            workers: rng.spread(1, 64) as usize,
            queue: rng.spread(1, 256) as usize,
            refuse: rng.pick(&[0, 1_000, 50_000]),
            cancel: rng.pick(&[0, 10_000, 100_000, 300_000]),
            detach: rng.pick(&[0, 100_000, 600_000]),
            deadline: rng.pick(&[0, 50_000, 300_000]),
            slow: rng.pick(&[0, 10_000, 200_000]),
            slowest: rng.spread(MILLIS, 60 * SECS),
            large: rng.pick(&[0, 10_000, 30_000, 150_000]),
            largest: rng.spread(2_000, 60_000),
            pause: rng.spread(MILLIS, 2 * SECS),
            rest: rng.pick(&[0, 1_000, 20_000]),
            burst: rng.spread(1, 16),
            open: rng.spread(1, 64) as usize,
            memory: rng.pick(&[0, 100_000, 500_000, 900_000]),
            post: rng.pick(&[0, 100_000, 500_000]),
            streams: 1024,
            posting: posting_faults(mutant),
            deferred: rng.pick(&[0, 100_000]),
            gap: 0,
            moves: 0,
            pauses: 0,
            restorations: 0,
            anonymous: rng.chance(200_000),
            loopback: rng.pick(&[
                (false, false),
                (false, false),
                (true, true),
                (true, true),
                (true, false),
                (false, true),
            ]),
            #[cfg(feature = "soak")]
            secret: None,
            chain: rng.pick(&[0, 300_000, 900_000]),
            inside: rng.pick(&[0, 50_000, 300_000, 1_000_000]),
        };
        plan.client.loopback = plan.loopback.0;
        plan.fit(rng);
        plan
    }

    /// Adjusts settings that depend on others.
    fn fit(&mut self, rng: &mut Rng) {
        // In a run without faults, probes alone keep a call alive unless the patience is short. Short ones
        // are drawn too, so that keep-alives are tested.
        let patiences = if self.calm { [1, 1, 2, 10] } else { [2, 10, 10, 30] };
        self.client.patience = Duration::from_secs(rng.pick(&patiences));
        self.client.server_patience = self.is_unhurried().then_some(Duration::from_secs(60));
        if self.calm && rng.chance(500_000) {
            self.slow = 300_000;
            self.slowest = 60 * SECS;
        }
        if !self.calm {
            self.faults(rng);
            self.limits(rng);
            if self.inside > 500_000 && rng.chance(700_000) {
                // Procedures that wait until everything has passed in their exchanges need room for it at the
                // server.
                self.server.held_budget = 64 << 20;
            }
        }
        if self.hostile && rng.chance(500_000) {
            // The server's memory is shared between the hostile peer and clients that are sending long
            // arguments.
            self.large = 600_000;
            self.server.reassembly_budget = 100_000;
        }
        #[cfg(feature = "soak")]
        if rng.chance(200_000) {
            self.secret = Some(Keys::draw(&mut rng.fork(), (self.servers, self.clients), self.calm));
            // The hostile peer's datagrams are in the open scheme, so there is no hostile peer in this run.
            self.hostile = false;
            self.path.spoof = if self.calm { 0 } else { rng.pick(&[0, 10_000, 50_000]) };
            if self.is_brief() {
                self.chaos = BRIEF;
            }
        }
        if self.is_local() {
            // The window is derived from `burst`, not drawn, so that the rest of the random sequence stays
            // the same. Small windows are filled often.
            let window = [12_000, 24_000, 2 << 20][self.burst as usize % 3];
            (self.client.local_window, self.client.shared_local_window) = (window, window / 2);
            self.server.local_window = window;
            // Bytes that one process writes into shared memory reach the other process unchanged.
            self.path.corrupt = 0;
            if self.burst.is_multiple_of(2) {
                let same_user = SameUser::new(Arc::new(OneUser), SERVER);
                (self.client.same_user, self.server.same_user) = (Some(same_user.clone()), Some(same_user));
            }
        }
    }

    /// Draws the faults of paths and machines.
    fn faults(&mut self, rng: &mut Rng) {
        let path = &mut self.path;
        path.jitter = rng.spread(1, path.delay);
        path.loss = rng.pick(&[0, 2_000, 20_000, 100_000, 200_000, 350_000]);
        path.duplicate = rng.pick(&[0, 5_000, 50_000, 200_000]);
        path.reorder = rng.pick(&[0, 5_000, 50_000, 200_000]);
        path.late = rng.pick(&[0, 1_000, 10_000, 50_000]);
        path.corrupt = rng.pick(&[0, 1_000, 10_000, 50_000]);
        path.spoof = rng.pick(&[0, 1_000, 10_000]);
        path.icmp = rng.pick(&[0, 500_000, 1_000_000]);
        path.forged_icmp = rng.pick(&[0, 1_000, 10_000]);
        if rng.chance(300_000) {
            path.rate = rng.spread(200_000, 100_000_000);
            path.queue = rng.spread(MILLIS, 200 * MILLIS);
        }
        self.chaos = rng.pick(&[0, 2_000, 10_000, 50_000]);
        self.gap = rng.pick(&[0, 5_000, 50_000]);
        self.moves = rng.pick(&[0, 0, 50_000, 400_000]);
        self.pauses = rng.pick(&[0, 0, 50_000, 300_000]);
        self.restorations = rng.pick(&[0, 0, 0, 300_000]);
        if self.restorations > 0 {
            // With these chances, a fault happens in nearly every one of these runs.
            self.chaos = rng.pick(&[10_000, 50_000]);
        }
        if self.moves > 0 {
            self.rest = rng.pick(&[self.rest, 20_000, 100_000]);
        }
        // Of two clocks one may run faster and the other slower, as chrony and adjtimex(2) can make them.
        self.drift = rng.pick(&[100, 55_000]);
    }

    /// Draws small tables and short holding times, so that servers forget all the time.
    fn limits(&mut self, rng: &mut Rng) {
        let (server, client) = (&mut self.server, &mut self.client);
        server.max_conversations = rng.pick(&[1, 1, 2, 3, 4, 1 << 20]);
        server.max_activities = rng.pick(&[2, 64, 4096, 4096]);
        server.hold = Duration::from_millis(rng.pick(&[20, 500, 5_000, 30_000]));
        server.held_budget = rng.pick(&[500, 8_000, 100_000, 64 << 20]);
        server.sending_budget = rng.pick(&[20_000, 200_000, 3 << 29]);
        server.reassembly_budget = rng.pick(&[20_000, 100_000, 1 << 29]);
        server.max_arguments = rng.pick(&[30_000, 1 << 28]);
        server.window = rng.pick(&[5_000, 40_000, 256 << 10]);
        server.max_datagram = rng.pick(&[1200, 1200, 9_000, 64_000]);
        self.streams = rng.pick(&[1, 2, 3, 1024]);
        client.max_outstanding = rng.pick(&[1, 8, 4096]);
        // The bounds are reached, but not all the time, because a refused call tests little.
        let bound = client.max_outstanding.min(server.max_activities) as usize;
        self.open = self.open.min(bound + usize::from(rng.chance(300_000)));
        client.max_result = rng.pick(&[30_000, 1 << 30]);
        client.window = rng.pick(&[5_000, 40_000, 256 << 10]);
        client.max_datagram = rng.pick(&[1200, 1200, 9_000, 64_000]);
    }

    /// Returns whether both ends see that they are on one machine, so that datagrams are of the local scheme.
    pub fn is_local(&self) -> bool {
        self.loopback == (true, true) && self.scheme().is_none()
    }

    /// Returns whether clients ask servers to bear a long silence, and users stall for long inside calls. It
    /// is derived, not drawn, so that other runs stay the same: seeds that once failed are of those.
    pub fn is_unhurried(&self) -> bool {
        self.burst % 3 == 2
    }

    /// Returns the number of the scheme with secrets in which datagrams are sealed, if there is one.
    pub fn scheme(&self) -> Option<u8> {
        #[cfg(feature = "soak")]
        return self.secret.as_ref().map(Keys::scheme);
        #[cfg(not(feature = "soak"))]
        None
    }

    /// Draws the path of one direction between two hosts: the plan's, with some faults turned off.
    pub fn own_path(&self, rng: &mut Rng) -> Path {
        let mut path = self.path;
        for chance in
            [&mut path.loss, &mut path.duplicate, &mut path.reorder, &mut path.late, &mut path.corrupt]
        {
            if rng.chance(200_000) {
                *chance = 0;
            }
        }
        if !self.calm {
            path.mtu = rng.spread(1200, 66_000) as usize;
        }
        path
    }

    /// Draws the length of arguments or of a result in bytes: a multiple of four, as in XDR.
    pub fn size(&self, rng: &mut Rng) -> usize {
        let size = match rng.chance(self.large) {
            // The size is often the same, so that messages of different calls look alike.
            true if rng.chance(500_000) => self.largest,
            true => rng.spread(1_000, self.largest),
            false => rng.spread(1, 256),
        };
        size as usize & !3
    }

    /// Draws how long the caller of a call waits, if it has a deadline. The time of some calls is over before
    /// they are made.
    pub fn draw_deadline(&self, rng: &mut Rng) -> Option<Nanos> {
        let waits = rng.chance(self.deadline);
        waits.then(|| if rng.chance(100_000) { 0 } else { rng.spread(MILLIS, 10 * SECS) })
    }

    /// Draws how long the execution of a call takes; most calls are done at once.
    pub fn duration(&self, rng: &mut Rng) -> Nanos {
        if !rng.chance(self.slow) {
            return 0;
        }
        rng.spread(MICROS, self.slowest)
    }
}

/// Returns the faults of posted writes that break the mutant's rule.
fn posting_faults(mutant: Mutant) -> Faults {
    Faults {
        reuses_streams: mutant.breaks(Rule::StreamReused),
        does_early: mutant.breaks(Rule::PostEarly),
        does_again: mutant.breaks(Rule::PostAgain),
        does_behind_refused: mutant.breaks(Rule::PostBehindRefused),
        believes_flush: mutant.breaks(Rule::FlushBelieves),
    }
}
