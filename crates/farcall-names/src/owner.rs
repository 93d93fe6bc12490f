//! The process that owns an entry, and whether it is alive.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::sync::OnceLock;

/// Identifies a process, and distinguishes it from earlier and later processes with the same number.
///
/// The system reuses process numbers, so an owner also has the process's start time. The process number and
/// the start time have a meaning only within one boot and one process namespace, so an owner has these too.
/// A process in a time namespace sees all start times shifted; an owner's start time is that of the machine.
/// On systems other than Linux, and where `/proc` is not mounted, only the number is known. Unknown fields
/// are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Owner {
    /// The process number.
    pub pid: u32,
    /// When the process started, in clock ticks since the boot (field 22 of `/proc/PID/stat`, as a process
    /// outside of all time namespaces reads it).
    pub started: u64,
    /// The beginning of the boot's random identifier.
    pub boot: u64,
    /// The number of the process namespace.
    pub namespace: u64,
}

/// Whether an owner is alive, as far as this process can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// The process runs.
    Alive,
    /// The process has exited, or the machine was booted in the meantime.
    Dead,
    /// The process belongs to another process namespace, such as a container's, or the system does not reveal
    /// whether the process runs, or there is no process.
    /// Its entries are listed, but a process that exports the same name replaces them.
    Unknown,
}

impl Owner {
    /// No known process: a person or a tool has written the entry.
    pub const NONE: Owner = Owner { pid: 0, started: 0, boot: 0, namespace: 0 };

    /// Returns the calling process.
    pub fn current() -> Self {
        let pid = std::process::id();
        // If `/proc` shows another number for this process, it belongs to another process namespace and
        // cannot be used.
        let shown = fs::read_link("/proc/self").ok();
        if shown.and_then(|shown| shown.to_str()?.parse().ok()) != Some(pid) {
            return Self { pid, started: 0, boot: 0, namespace: 0 };
        }
        Self {
            pid,
            started: stat_of("self").and_then(Stat::started_at).unwrap_or(0),
            boot: Self::current_boot(),
            namespace: namespace().unwrap_or(0),
        }
    }

    /// Returns the beginning of the boot's random identifier, or 0 if it is not known.
    pub(crate) fn current_boot() -> u64 {
        static BOOT: OnceLock<u64> = OnceLock::new();
        *BOOT.get_or_init(|| boot().unwrap_or(0))
    }

    /// Returns whether this owner is alive, as far as the calling process can tell.
    pub fn liveness(&self) -> Liveness {
        self.seen_from(&Self::current())
    }

    /// Returns whether the owner is known to be on another machine, or in a container of its own on this one.
    pub fn is_elsewhere(&self) -> bool {
        // Neither changes while the process runs.
        static HERE: OnceLock<(u64, u64)> = OnceLock::new();
        let (boot, namespace) = HERE.get_or_init(|| {
            let here = Self::current();
            (here.boot, here.namespace)
        });
        are_different(self.boot, *boot) || are_different(self.namespace, *namespace)
    }

    fn seen_from(&self, here: &Self) -> Liveness {
        if self == here {
            return Liveness::Alive;
        }
        if *self == Self::NONE {
            return Liveness::Unknown;
        }
        if are_different(self.boot, here.boot) {
            return Liveness::Dead;
        }
        if are_different(self.namespace, here.namespace) {
            return Liveness::Unknown;
        }
        if self.started == 0 || here.started == 0 {
            return runs(self.pid);
        }
        self.judged(stat_of(self.pid), || runs(self.pid))
    }

    /// Returns whether the owner is alive. `stat` describes the process that has the owner's number now, if
    /// it can be read. `runs` says whether any process has that number.
    fn judged(&self, stat: Option<Stat>, runs: impl FnOnce() -> Liveness) -> Liveness {
        match stat {
            Some(stat) if stat.has_exited() => Liveness::Dead,
            Some(stat) => match stat.started_at() {
                Some(started) if started != self.started => Liveness::Dead,
                Some(_) => Liveness::Alive,
                None => runs(),
            },
            // That the state cannot be read does not prove that the process is dead: it can be hidden from
            // this one (proc_pid(5), hidepid), or this process can lack a free descriptor.
            None if runs() == Liveness::Dead => Liveness::Dead,
            None => Liveness::Unknown,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            0 => f.write_str("no known process"),
            pid => write!(f, "process {pid}"),
        }
    }
}

/// Determines whether owners are alive, and remembers the result for each owner.
pub(crate) struct Judge {
    /// The calling process, once an owner was judged.
    here: Option<Owner>,
    judged: BTreeMap<Owner, Liveness>,
}

impl Judge {
    pub(crate) fn new() -> Self {
        Self { here: None, judged: BTreeMap::new() }
    }

    pub(crate) fn liveness(&mut self, owner: &Owner) -> Liveness {
        let here = self.here.get_or_insert_with(Owner::current);
        *self.judged.entry(*owner).or_insert_with(|| owner.seen_from(here))
    }

    pub(crate) fn is_dead(&mut self, owner: &Owner) -> bool {
        self.liveness(owner) == Liveness::Dead
    }

    /// Returns whether `owner` is alive and is another process than `this`.
    pub(crate) fn is_live_other(&mut self, owner: &Owner, this: &Owner) -> bool {
        // Two live processes of one namespace have different numbers.
        self.liveness(owner) == Liveness::Alive && owner.pid != this.pid
    }
}

/// Returns whether two numbers are known, and differ.
fn are_different(one: u64, other: u64) -> bool {
    one != 0 && other != 0 && one != other
}

/// What `/proc/PID/stat` says about a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    /// The state of its first thread.
    state: char,
    threads: u64,
    /// When it started, in clock ticks, as this process sees it.
    started: u64,
    /// By how many ticks this process sees start times shifted; `None` if that is not known.
    shift: Option<i64>,
}

impl Stat {
    /// Returns whether the process has exited, although its parent has not asked for its exit status. While a
    /// process ends, or if only its first thread has ended, other threads may still run.
    fn has_exited(self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x') && self.threads <= 1
    }

    /// Returns when the process started, as a process outside of all time namespaces sees it.
    fn started_at(self) -> Option<u64> {
        self.started.checked_add_signed(self.shift?.checked_neg()?)
    }
}

/// Reads `/proc/PID/stat` of a process, where `pid` is its number or `self`.
fn stat_of(pid: impl fmt::Display) -> Option<Stat> {
    let stat = parse_stat(&proc_file(&format!("{pid}/stat")).ok()?)?;
    Some(Stat { shift: shift(), ..stat })
}

/// The kernel's USER_HZ, which is 100 on every architecture that Rust has (`asm-generic/param.h`). It is not
/// asked for, because that reads the auxiliary vector by a way that valgrind does not emulate.
#[cfg(target_os = "linux")]
const TICKS_PER_SECOND: u64 = 100;

/// Returns by how many clock ticks the kernel shifts the start times that this process reads: the offset of
/// CLOCK_BOOTTIME in its time namespace (time_namespaces(7)). Returns `None` if it is not known.
#[cfg(target_os = "linux")]
fn shift() -> Option<i64> {
    let Ok(own) = fs::read_link("/proc/self/ns/time") else {
        // The kernel has no time namespaces.
        return Some(0);
    };
    // The file below is about the namespace of children, which differs between unshare(2) and execve(2).
    if fs::read_link("/proc/self/ns/time_for_children").ok()? != own {
        return None;
    }
    parse_offset(&proc_file("self/timens_offsets").ok()?, TICKS_PER_SECOND)
}

#[cfg(not(target_os = "linux"))]
fn shift() -> Option<i64> {
    Some(0)
}

/// Returns the offset of CLOCK_BOOTTIME in the text of `/proc/PID/timens_offsets`, in clock ticks. Returns
/// `None` if it is not a whole number of ticks, because shifted times are rounded.
fn parse_offset(offsets: &str, ticks_per_second: u64) -> Option<i64> {
    let fields = offsets.lines().find_map(|line| line.trim_start().strip_prefix("boottime"))?;
    let mut fields = fields.split_whitespace();
    let (seconds, nanos): (i64, i64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let ticks = i64::try_from(ticks_per_second).ok()?;
    let part = nanos.checked_mul(ticks)?;
    if part % 1_000_000_000 != 0 {
        return None;
    }
    seconds.checked_mul(ticks)?.checked_add(part / 1_000_000_000)
}

/// Returns the state, the number of threads, and the start time in the text of `/proc/PID/stat` (fields 3, 20
/// and 22 of proc_pid_stat(5)).
fn parse_stat(stat: &str) -> Option<Stat> {
    // The second field is the program's name in parentheses, which may itself hold spaces and parentheses.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?.chars().next()?;
    let threads = fields.nth(20 - 4)?.parse().ok()?;
    let started = fields.nth(22 - 21)?.parse().ok()?;
    Some(Stat { state, threads, started, shift: Some(0) })
}

fn boot() -> Option<u64> {
    let text = proc_file("sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).ok()
}

fn namespace() -> Option<u64> {
    let link = fs::read_link("/proc/self/ns/pid").ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

fn proc_file(path: &str) -> io::Result<String> {
    const MAX_BYTES: u64 = 4096;
    let mut bytes = Vec::new();
    fs::File::open(format!("/proc/{path}"))?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    // A program's name can have any bytes.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns whether any process has the number `pid`. Without start times, nothing more can be known.
#[cfg(unix)]
fn runs(pid: u32) -> Liveness {
    use rustix::io::Errno;
    use rustix::process::{Pid, test_kill_process};

    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return Liveness::Dead;
    };
    match test_kill_process(pid) {
        Err(Errno::SRCH) => Liveness::Dead,
        Ok(()) | Err(Errno::PERM) => Liveness::Alive,
        Err(_) => Liveness::Unknown,
    }
}

#[cfg(not(unix))]
fn runs(_: u32) -> Liveness {
    Liveness::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive() {
        assert_eq!(Owner::current().liveness(), Liveness::Alive);
    }

    #[test]
    fn a_name_with_parentheses_does_not_mislead() {
        let stat = "7 (a) Z 9 (b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 424242 20 21";
        assert_eq!(parse_stat(stat), Some(Stat { state: 'S', threads: 17, started: 424242, shift: Some(0) }));
        assert_eq!(parse_stat("7 (a) S 1 2"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn another_boot_is_dead_and_another_namespace_unknown() {
        let here = Owner { pid: 1, started: 2, boot: 3, namespace: 4 };
        assert_eq!(Owner { boot: 33, ..here }.seen_from(&here), Liveness::Dead);
        assert_eq!(Owner { namespace: 44, ..here }.seen_from(&here), Liveness::Unknown);
        assert_eq!(Owner { boot: 33, namespace: 44, ..here }.seen_from(&here), Liveness::Dead);
    }

    #[test]
    #[cfg(unix)]
    fn an_unknown_boot_or_namespace_is_no_reason_to_call_an_owner_dead() {
        let here = Owner::current();
        let unknown = Owner { boot: 0, namespace: 0, ..here };
        assert_eq!(unknown.seen_from(&here), Liveness::Alive);
        assert_eq!(here.seen_from(&unknown), Liveness::Alive);
        // An owner is dead when no process has its number, whether or not the boot is known.
        let nobody = Owner { pid: i32::MAX as u32, ..here };
        assert_eq!(nobody.seen_from(&unknown), Liveness::Dead);
        assert_eq!(nobody.seen_from(&here), Liveness::Dead);
    }

    #[test]
    fn a_hidden_process_is_unknown_and_a_zombie_is_dead() {
        let owner = Owner { pid: 1, started: 2, boot: 3, namespace: 4 };
        let cases = [
            (Some(('S', 1, 2)), Liveness::Unknown, Liveness::Alive),
            (Some(('R', 1, 3)), Liveness::Alive, Liveness::Dead),
            (Some(('Z', 1, 2)), Liveness::Alive, Liveness::Dead),
            (Some(('X', 0, 2)), Liveness::Alive, Liveness::Dead),
            // Its first thread has ended, and others run.
            (Some(('Z', 2, 2)), Liveness::Alive, Liveness::Alive),
            (None, Liveness::Alive, Liveness::Unknown),
            (None, Liveness::Unknown, Liveness::Unknown),
            (None, Liveness::Dead, Liveness::Dead),
        ];
        for (stat, runs, expected) in cases {
            let stat = stat.map(|(state, threads, started)| Stat { state, threads, started, shift: Some(0) });
            assert_eq!(owner.judged(stat, || runs), expected, "{stat:?} {runs:?}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_reused_number_is_dead() {
        let here = Owner::current();
        assert_eq!(Owner { started: here.started + 1, ..here }.liveness(), Liveness::Dead);
    }

    #[test]
    fn a_time_namespace_shifts_start_times() {
        let text = |seconds, nanos| format!("monotonic  {:>10} 0\nboottime  {seconds:>10} {nanos:>9}\n", 5);
        let cases = [
            ((0, 0), Some(0)),
            ((100_000, 0), Some(10_000_000)),
            ((-3, 0), Some(-300)),
            ((1, 990_000_000), Some(199)),
            ((1, 995_000_000), None),
        ];
        for ((seconds, nanos), ticks) in cases {
            assert_eq!(parse_offset(&text(seconds, nanos), 100), ticks);
        }
        assert_eq!(parse_offset(&text(i64::MAX, 0), 100), None);
        assert_eq!(parse_offset("monotonic 0 0", 100), None);
        let owner = Owner { pid: 1, started: 50, boot: 3, namespace: 4 };
        let seen = |shift| Some(Stat { state: 'S', threads: 1, started: 350, shift });
        assert_eq!(owner.judged(seen(Some(300)), || Liveness::Dead), Liveness::Alive);
        assert_eq!(owner.judged(seen(Some(0)), || Liveness::Alive), Liveness::Dead);
        assert_eq!(owner.judged(seen(None), || Liveness::Alive), Liveness::Alive, "the number decides");
    }

    #[test]
    #[cfg(unix)]
    fn without_start_times_the_number_decides() {
        let here = Owner { started: 0, ..Owner::current() };
        assert_eq!(here.liveness(), Liveness::Alive);
        // The number is above the largest process number of any kernel.
        assert_eq!(Owner { pid: i32::MAX as u32, ..here }.liveness(), Liveness::Dead);
        assert_eq!(Owner { pid: u32::MAX, ..here }.liveness(), Liveness::Dead);
        assert_eq!(Owner { pid: 0, ..here }.liveness(), Liveness::Dead);
    }
}
