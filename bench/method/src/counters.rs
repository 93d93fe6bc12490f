//! Counts a process's instructions, system calls, allocations and processor time.
use serde::{Deserialize, Serialize};

use crate::alloc;

/// What to count. Instructions are counted separately, because the tracepoint makes every system call longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Instructions, by the processor's own counters.
    Instructions,
    /// System calls and allocations.
    Events,
}

/// The counts of one process. `None` if the machine cannot count it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// The instructions in user mode.
    pub user_instructions: Option<u64>,
    /// The instructions in the kernel on behalf of this process.
    pub kernel_instructions: Option<u64>,
    /// The system calls.
    pub syscalls: Option<u64>,
    /// The allocations and reallocations.
    pub allocations: Option<u64>,
}

impl Counts {
    /// Returns the sum of both sides of a call. A number is unknown if it is unknown for one side.
    pub fn and(self, other: Counts) -> Counts {
        let sum = |a: Option<u64>, b: Option<u64>| Some(a? + b?);
        Counts {
            user_instructions: sum(self.user_instructions, other.user_instructions),
            kernel_instructions: sum(self.kernel_instructions, other.kernel_instructions),
            syscalls: sum(self.syscalls, other.syscalls),
            allocations: sum(self.allocations, other.allocations),
        }
    }
}

/// Counters of all present threads of the process, and of the threads that these will start. They are open
/// only while something is counted, because an open tracepoint slows every system call of the machine.
pub struct Counters {
    what: What,
    sources: Vec<platform::Source>,
    allocations: u64,
}

impl Counters {
    /// Opens the counters without starting them. `all` includes the calling thread. In a server that thread
    /// only reads orders.
    pub fn open(what: What, all: bool) -> Counters {
        Counters { what, sources: platform::open(what, all), allocations: 0 }
    }

    /// Starts the counters.
    pub fn start(&mut self) {
        alloc::counting(self.what == What::Events);
        self.allocations = alloc::allocations();
        self.sources.iter_mut().for_each(platform::Source::start);
    }

    /// Stops the counters, and returns the counts.
    pub fn stop(mut self) -> Counts {
        self.sources.iter_mut().for_each(platform::Source::stop);
        alloc::counting(false);
        let allocations = alloc::allocations() - self.allocations;
        let mut sums = self.sources.iter_mut().map(platform::Source::sum);
        match self.what {
            What::Instructions => Counts {
                user_instructions: sums.next().flatten(),
                kernel_instructions: sums.next().flatten(),
                ..Counts::default()
            },
            What::Events => Counts {
                syscalls: sums.next().flatten(),
                allocations: Some(allocations),
                ..Counts::default()
            },
        }
    }
}

/// Returns why counts are missing on this machine, if they are; for the conditions.
pub fn missing() -> Vec<String> {
    platform::missing()
}

/// Returns the processor time that this process has used, user and kernel, in nanoseconds; 0 if unknown.
pub fn processor_time() -> u64 {
    platform::processor_time()
}

#[cfg(target_os = "linux")]
mod platform {
    //! `perf_event_open`, and tracefs for the tracepoint's number.
    use std::io;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use perf_event::events::{Hardware, Tracepoint};
    use perf_event::{Builder, Counter};
    use rustix::fs::{Mode, OFlags};
    use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

    use super::What;

    /// One event, counted for all threads, of which there may be none. `None` if it cannot be counted.
    pub struct Source(Option<Vec<Counter>>);

    impl Source {
        pub fn start(&mut self) {
            self.0.iter_mut().flatten().for_each(|c| drop(c.enable()));
        }

        pub fn stop(&mut self) {
            self.0.iter_mut().flatten().for_each(|c| drop(c.disable()));
        }

        /// Returns `None` if the event is not counted, or a counter could not be read.
        pub fn sum(&mut self) -> Option<u64> {
            self.0.as_mut()?.iter_mut().map(|c| c.read().ok()).sum()
        }
    }

    pub fn open(what: What, all: bool) -> Vec<Source> {
        match builders(what) {
            Ok(builders) => builders.into_iter().map(|b| Source(of_threads(b, all).ok())).collect(),
            Err(_) => Vec::new(),
        }
    }

    fn builders(what: What) -> io::Result<Vec<Builder<'static>>> {
        match what {
            What::Instructions => {
                let user = Builder::new(Hardware::INSTRUCTIONS);
                let mut kernel = Builder::new(Hardware::INSTRUCTIONS);
                kernel.include_kernel().exclude_user(true);
                Ok(vec![user, kernel])
            }
            What::Events => {
                let mut syscalls = Builder::new(Tracepoint::with_id(tracepoint()?));
                syscalls.include_kernel();
                Ok(vec![syscalls])
            }
        }
    }

    fn of_threads(mut builder: Builder<'static>, all: bool) -> io::Result<Vec<Counter>> {
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let mut counters = Vec::new();
        for thread in std::fs::read_dir("/proc/self/task")? {
            let Some(id) = thread?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            if id != own || all {
                counters.push(builder.observe_pid(id).any_cpu().inherit(true).build()?);
            }
        }
        Ok(counters)
    }

    /// Returns the number of `raw_syscalls:sys_enter`. If tracefs is not mounted, mounts it without a path:
    /// the file system is reached through a descriptor, and unmounted when that is closed.
    fn tracepoint() -> io::Result<u64> {
        const ID: &str = "events/raw_syscalls/sys_enter/id";
        let text = match std::fs::read_to_string(format!("/sys/kernel/tracing/{ID}")) {
            Ok(text) => text,
            Err(_) => {
                let root = detached_tracefs()?;
                let file = rustix::fs::openat(root, ID, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
                let mut text = String::new();
                std::fs::File::from(file).read_to_string(&mut text)?;
                text
            }
        };
        text.trim().parse().map_err(io::Error::other)
    }

    fn detached_tracefs() -> io::Result<OwnedFd> {
        let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(&context)?;
        let flags = MountAttrFlags::MOUNT_ATTR_RDONLY;
        Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)?)
    }

    pub fn missing() -> Vec<String> {
        let tries = [("instructions", What::Instructions), ("system calls", What::Events)];
        let failed = tries.into_iter().filter_map(|(name, what)| {
            let opened = builders(what)
                .and_then(|all| all.into_iter().try_for_each(|b| of_threads(b, true).map(drop)));
            Some(format!("{name} not counted: {}", opened.err()?))
        });
        failed.collect()
    }

    pub fn processor_time() -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    //! Only allocations are counted on this system.
    pub struct Source;

    impl Source {
        pub fn start(&mut self) {}
        pub fn stop(&mut self) {}
        pub fn sum(&mut self) -> Option<u64> {
            None
        }
    }

    pub fn open(_: super::What, _: bool) -> Vec<Source> {
        Vec::new()
    }

    pub fn missing() -> Vec<String> {
        vec!["instructions and system calls are counted on Linux only".into()]
    }

    pub fn processor_time() -> u64 {
        0
    }
}
