//! A server ends at SIGTERM, and finishes what has begun. It is alone in this file because a signal is for
//! the whole process.

#![allow(missing_docs)]
#![cfg(all(unix, feature = "signals"))]

use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use farcall_onc::Server;

#[farcall::interface(program = 0x2000_0079, version = 1)]
pub trait Waits {
    #[procedure(1)]
    fn wait(&self) -> farcall::Result<u32>;
}

/// Says that a call has begun, and waits until it may go on.
struct AtGate(mpsc::Sender<()>, Mutex<mpsc::Receiver<()>>);

impl Waits for AtGate {
    fn wait(&self) -> farcall::Result<u32> {
        self.0.send(()).unwrap();
        self.1.lock().unwrap().recv().unwrap();
        Ok(7)
    }
}

#[test]
fn a_signal_ends_a_server_when_the_calls_that_have_begun_are_finished() {
    let ((begun, begins), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel());
    let gate = Arc::new(AtGate(begun, Mutex::new(goes_on)));
    farcall_onc::take_signals().unwrap();
    let server = Server::builder().program::<dyn Waits>(gate).address("127.0.0.1:0".parse().unwrap());
    let server = server.start().unwrap();
    let waits = farcall_onc::import::<dyn Waits>(&format!("tcp://{}", server.tcp().unwrap())).unwrap();
    let pending = waits.start().wait();
    begins.recv().unwrap();
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM).unwrap();
    let main = thread::spawn(move || server.until_signal());
    go_on.send(()).unwrap();
    assert_eq!(pending.wait().unwrap(), 7);
    main.join().unwrap().unwrap();
}
