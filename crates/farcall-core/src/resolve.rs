//! Resolves the names of hosts within a given time, although the system's resolver knows no deadline.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use crate::env::{Env, Time};
use crate::question::Asides;
use crate::{CallFailed, Kind, Ran, context, serving};

/// A host that is being resolved in one environment: simulated ones have hosts of their own.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Wanted {
    env: usize,
    host: String,
    port: u16,
}

type Lookups = Asides<Wanted, Vec<SocketAddr>>;

/// The lookups of this process, with its number: a forked child has none of its parent's threads.
static LOOKUPS: Mutex<Option<(u32, Arc<Lookups>)>> = Mutex::new(None);

/// Returns the addresses of a host, in the order in which to try them. Blocks until they are known, but no
/// longer than until `until`, and than the call may take that this thread serves. The system's resolver can
/// take half a minute; then a thread goes on waiting for it, on behalf of whoever asks the same meanwhile.
///
/// # Errors
/// [`Kind::NoSuchName`] if the host is unknown; [`Kind::Deadline`] if it is not known in time. `Ran::No`.
pub fn resolve(
    env: &Arc<dyn Env>,
    host: &str,
    port: u16,
    until: Time,
) -> Result<Vec<SocketAddr>, CallFailed> {
    let literal = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    // An address is no name, which only a resolver knows.
    if let Ok(ip) = literal.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    if let Ok(scoped) = format!("[{literal}]:{port}").parse::<SocketAddr>() {
        return Ok(vec![scoped]);
    }
    serving::may_wait()?;
    let wanted = Wanted { env: Arc::as_ptr(env).cast::<()>() as usize, host: literal.to_owned(), port };
    let (ours, asked) = (env.clone(), wanted.clone());
    let look_up = move || {
        let found = ours.resolve(&asked.host, asked.port);
        found.map_err(|why| {
            CallFailed::new(Kind::NoSuchName, Ran::No)
                .because(format!("{}: {why}", asked.host))
                .caused_by(why)
        })
    };
    let question = lookups().ask(env, &wanted, None, look_up)?;
    let until = context::inherited().0.map_or(until, |inherited| until.min(inherited));
    question.wait_until(&**env, until).unwrap_or_else(|| {
        let why = format!("the name of {wanted} is not resolved so far");
        Err(CallFailed::new(Kind::Deadline, Ran::No).because(why))
    })
}

fn lookups() -> Arc<Lookups> {
    let process = std::process::id();
    let mut lookups = LOOKUPS.lock().unwrap_or_else(PoisonError::into_inner);
    match &*lookups {
        Some((of, lookups)) if *of == process => lookups.clone(),
        _ => lookups.insert((process, Arc::default())).1.clone(),
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the host {}", self.host)
    }
}
