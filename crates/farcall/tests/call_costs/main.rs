//! What a blocking call costs: allocations, system calls and threads, each counted in processes of its own.
//!
//! This is a program of its own, because its global allocator counts what the whole process allocates.
#![cfg(target_os = "linux")]
#![allow(missing_docs)]

#[macro_use]
#[path = "../common/system.rs"]
mod system;
mod allocations;
#[path = "../common/mod.rs"]
mod common;
mod counting;
mod ends;
#[path = "../common/execution_log.rs"]
#[allow(dead_code, reason = "each test program uses a part")]
mod execution_log;
#[path = "../common/progress.rs"]
#[allow(dead_code, reason = "each test program uses a part")]
mod progress;
mod system_calls;
mod threads;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// Not a test by itself: the processes that the tests start run this.
#[test]
fn a_process_that_a_test_starts() {
    let Ok(role) = std::env::var(ends::ROLE) else { return };
    match &role[..] {
        "server" => ends::serve(),
        "caller that counts allocations" => allocations::count(),
        "caller that makes rounds" => system_calls::make_rounds(),
        "caller that makes rounds of long calls" => system_calls::make_rounds_of_long_calls(),
        "caller over UDP that counts threads" => threads::count_over_udp(),
        "caller through shared memory that counts threads" => threads::count_through_shared_memory(),
        unknown => panic!("no such role: {unknown}"),
    }
}
