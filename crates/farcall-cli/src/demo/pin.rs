//! Binds threads to processors, if the system can.

/// Returns two processors that this process may use, if there are two.
#[cfg(target_os = "linux")]
pub fn two() -> Option<[usize; 2]> {
    use rustix::thread::{CpuSet, sched_getaffinity};
    let allowed = sched_getaffinity(None).ok()?;
    let mut each = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
    Some([each.next()?, each.next()?])
}

/// Binds this thread to a processor. If that is refused, it runs anywhere.
#[cfg(target_os = "linux")]
pub fn pin(processor: usize) {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut only = CpuSet::new();
    only.set(processor);
    let _ = sched_setaffinity(None, &only);
}

#[cfg(not(target_os = "linux"))]
pub fn two() -> Option<[usize; 2]> {
    None
}

#[cfg(not(target_os = "linux"))]
pub fn pin(_: usize) {}
