//! Counts what a process does: instructions, system calls, allocations, processor time.
use serde::{Deserialize, Serialize};

use crate::alloc;

/// What to count. Apart from each other, because a tracepoint makes every system call longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Instructions, by the processor's own counters.
    Instructions,
    /// System calls and allocations.
    Events,
}

/// Counts of one process; what its machine does not count is None.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Instructions in user mode.
    pub user_instructions: Option<u64>,
    /// Instructions in the kernel on this process's behalf.
    pub kernel_instructions: Option<u64>,
    /// System calls entered.
    pub syscalls: Option<u64>,
    /// Allocations and reallocations.
    pub allocations: Option<u64>,
}

impl Counts {
    /// Both sides of a call together; unknown where either is.
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

/// Counters of every thread that the process has now and of those that these will start. Opened for
/// counting and closed after it: an open tracepoint slows every system call of the machine.
pub struct Counters {
    what: What,
    sources: Vec<platform::Source>,
    allocations: u64,
}

impl Counters {
    /// Opens them without counting yet. `all` counts the calling thread too; a server's does nothing
    /// but read orders.
    pub fn open(what: What, all: bool) -> Counters {
        Counters { what, sources: platform::open(what, all), allocations: 0 }
    }

    /// Counts from now on.
    pub fn start(&mut self) {
        alloc::counting(self.what == What::Events);
        self.allocations = alloc::allocations();
        self.sources.iter_mut().for_each(platform::Source::start);
    }

    /// Counts no more, and says how much it was.
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

/// Why counts are missing on this machine, if they are; for the conditions.
pub fn missing() -> Vec<String> {
    platform::missing()
}

/// Processor time that this process has used, in nanoseconds, user and kernel; 0 if unknown.
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

    /// One event over all threads, of which there may be none; None if it cannot be counted.
    pub struct Source(Option<Vec<Counter>>);

    impl Source {
        pub fn start(&mut self) {
            self.0.iter_mut().flatten().for_each(|c| drop(c.enable()));
        }

        pub fn stop(&mut self) {
            self.0.iter_mut().flatten().for_each(|c| drop(c.disable()));
        }

        /// None if it is not counted, or a counter could not be read.
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

    /// The number of `raw_syscalls:sys_enter`. Where nobody mounted tracefs, mounts it nowhere: the
    /// file system is reached through a descriptor, and gone with it.
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
    //! Nothing is counted here but allocations.
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
