//! Which threads of this process sleep, as Linux tells in proc(5).

use std::fs::File;
use std::io::Read;

/// Returns the number of the calling thread. Returns `None` where proc(5) is not mounted.
pub(crate) fn number() -> Option<u32> {
    // "PROCESS/task/THREAD"
    let link = std::fs::read_link("/proc/thread-self").ok()?;
    link.file_name()?.to_str()?.parse().ok()
}

/// Returns whether the thread with this number sleeps.
pub(crate) fn sleeps(thread: u32) -> bool {
    // The beginning of the line has the number, the name in parentheses, and the state. A name has at most 15
    // bytes, and what follows has no parentheses.
    let mut line = [0; 128];
    let read = File::open(format!("/proc/self/task/{thread}/stat")).and_then(|mut file| file.read(&mut line));
    let Ok(len) = read else { return false };
    let line = &line[..len];
    let Some(end) = line.iter().rposition(|byte| *byte == b')') else { return false };
    matches!(line.get(end + 1..), Some([b' ', b'S' | b'D', ..]))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_that_waits_sleeps_and_one_that_asks_does_not() {
        let (tell, told) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let waiting = thread::spawn(move || {
            tell.send(number().expect("proc(5) is mounted")).unwrap();
            let _ = ends.recv();
        });
        let number_of_waiting = told.recv().unwrap();
        // It sleeps soon.
        while !sleeps(number_of_waiting) {
            thread::yield_now();
        }
        assert!(!sleeps(number().unwrap()));
        drop(end);
        waiting.join().unwrap();
        assert!(!sleeps(number_of_waiting), "a thread that has ended");
    }
}
