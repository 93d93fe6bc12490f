//! Counts the descriptors and mappings of this process, to show that none of other processes is left.

use std::fs;

/// The number of descriptors and of mapped memory files of farcall that a process has.
pub struct OpenResources {
    descriptors: usize,
    pub mappings: usize,
}

impl OpenResources {
    pub fn now() -> OpenResources {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        OpenResources {
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            mappings: maps.lines().filter(|line| line.contains("memfd:farcall")).count(),
        }
    }

    /// Waits until there are no more than these. Some resources that were open when these were counted may
    /// end later.
    pub fn wait_until_no_more_than(most: &OpenResources) {
        loop {
            let now = OpenResources::now();
            if now.descriptors <= most.descriptors && now.mappings <= most.mappings {
                return;
            }
            std::thread::yield_now();
        }
    }
}
