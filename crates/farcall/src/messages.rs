//! What a runtime says to its user ([`Env::say`]).

use std::io;
use std::net::SocketAddr;

use crate::env::Env;

/// Says why this server offers no calls through shared memory, and returns the message. If another process
/// has taken the name, the message says so: callers then reach that process, which cannot prove that it is
/// this server.
#[cold]
pub(crate) fn say_no_host(env: &dyn Env, address: SocketAddr, why: &io::Error) -> String {
    let why = match why.kind() {
        io::ErrorKind::AddrInUse => {
            "another socket of this user has taken the name that it needs for them".to_owned()
        }
        _ => why.to_string(),
    };
    let line = format!("{address} offers no calls through shared memory: {why}");
    env.say(&line);
    line
}
