//! Ready-made calls, each of which asks a host something in one line. They are the simplest of three levels,
//! as in Sun's "Networking on the Sun Workstation". The next level are the stubs of any program
//! ([`import`](crate::import)), and the last is [`Client`] with all its settings.

use std::time::{Duration, SystemTime};

use farcall::stub::Program as _;
use farcall::xdr::ByteString;
use farcall::{CallFailed, Kind, Ran, System};

use crate::client::{Builder, Client, NO_VERSION, OtherVersions, spelled};

/// Returns how long a program takes to answer its null procedure, which does nothing (RFC 5531 section 12).
/// It also counts as an answer if the program reports that it has no such procedure.
///
/// ```no_run
/// println!("NFS answers in {:?}", farcall_onc::routines::ping("10.0.0.7", 100_003, 3)?);
/// # Ok::<(), farcall::CallFailed>(())
/// ```
///
/// # Errors
/// If the program does not answer. Otherwise the errors of [`Builder::find`](crate::Builder::find).
pub fn ping(address: &str, program: u32, version: u32) -> Result<Duration, CallFailed> {
    let client = Client::builder().find(address, program, version)?;
    let anything = AnythingClient::from(client.program(program, version));
    let env = System::current();
    let start = env.now();
    match anything.null().map_err(CallFailed::from) {
        Err(why) if why.kind() != Kind::NoSuchProcedure => Err(why),
        Ok(()) | Err(_) => Ok(env.now().since(start)),
    }
}

/// Returns the lowest and the highest version of a program that a server has. To learn them, it calls a
/// version that no program has.
///
/// # Errors
/// If the program does not answer, or accepts any version. Otherwise the errors of
/// [`Builder::find`](crate::Builder::find).
pub fn versions(settings: &Builder, address: &str, program: u32) -> Result<OtherVersions, CallFailed> {
    let client = settings.find(address, program, NO_VERSION)?;
    let Err(why) = AnythingClient::from(client.program(program, NO_VERSION)).null() else {
        let why = format!("{} at {} takes any version", spelled(program, NO_VERSION), client.address());
        return Err(CallFailed::new(Kind::Other, Ran::Yes).because(why));
    };
    let why = CallFailed::from(why);
    let versions =
        std::error::Error::source(&why).and_then(|why| why.downcast_ref::<OtherVersions>()).copied();
    versions.ok_or(why)
}

/// Returns the users who are logged in at a host.
///
/// # Errors
/// If the host does not run rusersd.
pub fn rusers(host: &str) -> Result<Vec<User>, CallFailed> {
    Ok(crate::import::<dyn RUsers>(host)?.names()?)
}

/// Returns how busy a host is.
///
/// # Errors
/// If the host does not run rstatd.
pub fn rstat(host: &str) -> Result<Statistics, CallFailed> {
    // Debian's rstatd appends bytes that the protocol does not define.
    let client = Client::builder().lenient().find(host, <dyn RStat>::PROGRAM, <dyn RStat>::VERSION)?;
    Ok(client.bind::<dyn RStat>().statistics()?)
}

/// The null procedure, which every program has.
#[farcall::interface(program = 0, version = 0)]
trait Anything {
    #[procedure(0)]
    #[idempotent]
    fn null(&self) -> farcall::Result<()>;
}

/// The program rusersd, which says who is logged in.
#[farcall::interface(program = 100002, version = 3)]
pub trait RUsers {
    /// Returns the number of logged-in users.
    #[procedure(1)]
    #[idempotent]
    fn number(&self) -> farcall::Result<u32>;
    /// Returns the users who are not idle.
    #[procedure(2)]
    #[idempotent]
    fn names(&self) -> farcall::Result<Vec<User>>;
    /// Returns all users, idle or not.
    #[procedure(3)]
    #[idempotent]
    fn all_names(&self) -> farcall::Result<Vec<User>>;
}

/// A logged-in user (`rusers_utmp`).
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct User {
    /// The name.
    #[xdr(max = 32)]
    pub user: ByteString,
    /// The terminal.
    #[xdr(max = 32)]
    pub line: ByteString,
    /// The host from which the user logged in.
    #[xdr(max = 257)]
    pub host: ByteString,
    /// The kind of entry; 7 is a user.
    pub kind: i32,
    /// The time of the login, in seconds since 1970.
    pub time: i32,
    /// The time since the last key press, in seconds.
    pub idle: u32,
}

/// The program rstatd, which says how busy a host is.
#[farcall::interface(program = 100001, version = 3)]
pub trait RStat {
    /// Returns all statistics.
    #[procedure(1)]
    #[idempotent]
    fn statistics(&self) -> farcall::Result<Statistics>;
    /// Returns a number other than 0 if the host has a disk.
    #[procedure(2)]
    #[idempotent]
    fn have_disk(&self) -> farcall::Result<u32>;
}

/// How busy a host has been since it started (`statstime`).
#[derive(Clone, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct Statistics {
    /// Ticks of the processors: user, nice, system, idle.
    pub cpu: [i32; 4],
    /// Transfers of the first four disks.
    pub disks: [i32; 4],
    /// Pages read.
    pub pages_in: u32,
    /// Pages written.
    pub pages_out: u32,
    /// Pages read from the swap.
    pub swapped_in: u32,
    /// Pages written to the swap.
    pub swapped_out: u32,
    /// Interrupts.
    pub interrupts: u32,
    /// Packets received.
    pub packets_in: i32,
    /// Errors when receiving.
    pub errors_in: i32,
    /// Errors when sending.
    pub errors_out: i32,
    /// Collisions.
    pub collisions: i32,
    /// Context switches between processes.
    pub switches: u32,
    /// The average number of processes that were ready to run in the last 1, 5 and 15 minutes, in 256ths.
    pub load: [i32; 3],
    /// When the host started.
    pub started: Moment,
    /// The host's time when it answered.
    pub now: Moment,
    /// Packets sent.
    pub packets_out: i32,
}

impl Statistics {
    /// Returns the average number of processes that were ready to run in the last 1, 5 and 15 minutes.
    pub fn load_averages(&self) -> [f64; 3] {
        self.load.map(|load| f64::from(load) / 256.0)
    }

    /// Returns how long ago the host started.
    pub fn up(&self) -> Duration {
        self.now.system_time().duration_since(self.started.system_time()).unwrap_or_default()
    }
}

/// A time (`rstat_timeval`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, farcall::Xdr)]
pub struct Moment {
    /// Seconds since 1970.
    pub seconds: u32,
    /// Microseconds after that second.
    pub microseconds: u32,
}

impl Moment {
    fn system_time(self) -> SystemTime {
        SystemTime::UNIX_EPOCH
            + Duration::from_secs(self.seconds.into())
            + Duration::from_micros(self.microseconds.into())
    }
}
