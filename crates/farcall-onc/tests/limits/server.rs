//! A server whose process has no descriptor left for a further connection.

use std::fs::{self, File};
use std::sync::Arc;

use farcall_onc::{Client, Server};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[farcall::interface(program = 0x2000_0001, version = 1)]
pub trait Echo {
    #[procedure(1)]
    fn twice(&self, number: u32) -> farcall::Result<u32>;
}

struct Twice;

impl Echo for Twice {
    fn twice(&self, number: u32) -> farcall::Result<u32> {
        Ok(number.wrapping_mul(2))
    }
}

#[test]
fn a_connection_for_which_there_is_no_file_is_taken_when_there_is_one() {
    let _limit = crate::limit();
    let server = Server::builder().program::<dyn Echo>(Arc::new(Twice)).tcp("127.0.0.1:0".parse().unwrap());
    let server = server.start().unwrap();
    let connect = || Client::connect(&format!("tcp://{}", server.tcp().unwrap())).unwrap().bind::<dyn Echo>();
    let first = connect();
    assert_eq!(first.twice(1).unwrap(), 2);
    // One descriptor is left, for the client's end of the second connection. The server gets none to accept
    // it.
    let limit = getrlimit(Resource::Nofile);
    let most = fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|file| file.unwrap().file_name().to_str()?.parse().ok());
    setrlimit(Resource::Nofile, Rlimit { current: most.max().map(|most: u64| most + 9), ..limit }).unwrap();
    let mut taken: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    taken.pop();
    let second = connect();
    let call = std::thread::spawn(move || (second.twice(2).unwrap(), second));
    // Accepted connections are served meanwhile.
    (0..100).for_each(|n| assert_eq!(first.twice(n).unwrap(), 2 * n));
    assert_eq!(server.connections(), 1);
    drop(taken);
    setrlimit(Resource::Nofile, limit).unwrap();
    let (result, _second) = call.join().unwrap();
    assert_eq!(result, 4);
    assert_eq!(server.connections(), 2);
}
