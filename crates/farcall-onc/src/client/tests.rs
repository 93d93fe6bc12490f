//! A connection that is looked at before it is used again.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Instant;

use farcall::stub::Procedure;
use farcall::{Kind, Never};

use super::*;

static NULL: Procedure = Procedure { number: 0, name: "null", idempotent: true, blocking: false, deadline: None };

/// Calls when it is woken, as a task may.
struct Calling {
    client: Client,
    woken: AtomicU32,
}

impl Wake for Calling {
    fn wake(self: Arc<Self>) {
        // It does not matter what comes of it, but that it returns.
        let called = self.client.program(1, 1).start::<(), Never>(&NULL, &|_| Ok(()));
        called.detach();
        self.woken.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn who_is_woken_by_the_look_at_an_idle_connection_may_call() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Client::connect(&format!("tcp://{}", listener.local_addr().unwrap())).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let link = client.connection.lock().link.clone();
    // As if the service thread looked after it: so it does not, and the end is heard of only where the test wants it.
    link.lock().listed = true;
    let mut pending = client.program(1, 1).start::<(), Never>(&NULL, &|_| Ok(()));
    let calling = Arc::new(Calling { client: client.clone(), woken: AtomicU32::new(0) });
    let waker = Waker::from(calling.clone());
    assert!(std::pin::Pin::new(&mut pending).poll(&mut Context::from_waker(&waker)).is_pending());
    // Of a record that is too long the client says so at once; it needs not be told of a connection's end then.
    server.write_all(&[0xff; 4]).unwrap();
    client.connection.lock().stale = Instant::now();
    drop(client.connection.link(Instant::now(), None));
    assert_eq!(calling.woken.load(Ordering::SeqCst), 1);
    let why: CallFailed = pending.wait().unwrap_err().into();
    assert_eq!(why.kind(), Kind::BadResult);
}
