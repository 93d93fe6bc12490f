//! A client whose process has no descriptors left continues to use its connections.

use crate::common::{Echo, Stream};
use farcall::Calls;
use farcall_onc::Client;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn calls_are_gathered_where_the_system_has_no_descriptor_left() {
    let _limit = crate::limit();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://{}", listener.local_addr().unwrap());
    let echo = Client::connect(&address).unwrap().bind::<dyn Echo>();
    let mut stream = Stream::new(listener.accept().unwrap().0);
    std::thread::spawn(move || stream.serve());
    let former = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..former }).unwrap();
    let mut calls = Calls::new();
    (0..4).for_each(|n| calls.add(n, echo.start().next(n)));
    while let Some((n, result)) = calls.wait() {
        assert_eq!(result.unwrap(), n + 1);
    }
    // As soon as there are descriptors again, started calls that no thread waits for are served.
    setrlimit(Resource::Nofile, former).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(echo.start().next(7)).unwrap(), 8);
}
