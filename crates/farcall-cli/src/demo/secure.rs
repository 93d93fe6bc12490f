//! `farcall demo --secure`: what becomes of a changed datagram, of a stranger's key, of a call that the
//! policy does not allow, and of a key that is taken away.

mod tap;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use farcall::{Error, Runtime};
use serde_json::Value;

use super::interface::{Demo, DemoClient};
use super::keys::{self, SETTING, STRANGER, VAULT};
use super::process::Process;
use crate::failure::{Failure, Outcome};

/// The server from which the client's key is taken away.
const VAULT_NAME: &str = "Vault/one";

/// How many calls are made through the forwarder that changes datagrams.
const CALLS: u32 = 1_000;
/// The number of calling threads. Most of the time each waits for a retransmission.
const CALLERS: u32 = 50;

/// What the forwarder looks for in the datagrams.
const SECRET: &[u8] = b"the combination of the safe is 42-17-3";

/// How long a call may stay unanswered while datagrams are changed.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was observed.
pub struct Secured {
    pub sent: u32,
    /// The number of calls with the right result.
    pub answered: u32,
    /// The number of calls that the server counted, and of those that were executed again.
    pub executed: u32,
    pub repeated: u32,
    /// The datagrams that passed the forwarder; those that it changed, and those in which it read the secret.
    pub passed: u64,
    pub changed: u64,
    pub read: u64,
    /// Why the stranger was refused, and a procedure that the policy does not allow.
    pub stranger: Ended,
    pub denied: Ended,
    /// Why the call ended that ran when the key was taken away, the time until then, and why the next one was
    /// refused.
    pub ended: Ended,
    pub told: Duration,
    pub next: Ended,
}

/// How a call ended: the kind of its failure, whether it ran, and what people are told. The kind is empty if
/// it did not fail.
pub struct Ended {
    pub kind: String,
    pub ran: String,
    pub said: String,
}

impl Ended {
    fn of<T>(result: Result<T, Error>) -> Ended {
        match result {
            Err(Error::CallFailed(why)) => Ended {
                kind: format!("{:?}", why.kind()),
                ran: format!("{:?}", why.ran()),
                said: why.to_string(),
            },
            _ => Ended::read(&Value::Null),
        }
    }

    /// Reads how a call ended from what the command says of a failure in JSON.
    fn read(error: &Value) -> Ended {
        let field = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        let [kind, ran, said] = [field("kind"), field("ran"), field("message")];
        Ended { said: if kind.is_empty() { "it returned".to_owned() } else { said }, kind, ran }
    }

    /// Returns whether the call was refused and did not run.
    pub fn is_refused(&self) -> bool {
        self.kind == "NotPermitted" && self.ran == "No"
    }
}

/// Makes the calls, as the client with keys in this directory.
pub fn run(own: &Path) -> Outcome<Secured> {
    let vault = own.with_file_name(VAULT);
    let mut server =
        Process::start_with(Some((SETTING, vault.clone())), &["server".as_ref(), OsStr::new(VAULT_NAME)])?;
    let runtime = Runtime::builder().patience(PATIENCE).build()?;
    let (address, seen) = tap::start(server.address("address")?, SECRET)?;
    let tapped = runtime.import::<dyn Demo>(&format!("udp://{address}/{VAULT_NAME}"))?;
    let answered = call_all(&tapped);
    let counted = tapped.counted()?;
    let [passed, changed, read] = seen.counts();

    let stranger = call_as_stranger(&own.with_file_name(STRANGER))?;
    let direct = runtime.import::<dyn Demo>(VAULT_NAME)?;
    let denied = Ended::of(direct.sleep(0));

    let call = direct.start().hang();
    let said = server.line()?;
    if said != "hanging" {
        return Err(Failure::new(format!("the server said {said:?}")));
    }
    let start = Instant::now();
    keys::take_away(&vault)?;
    let ended = Ended::of(call.wait());
    let told = start.elapsed();
    let next = Ended::of(direct.echo(SECRET));
    let (executed, repeated) = (counted.executions, counted.repeated);
    let sent = CALLS;
    Ok(Secured {
        sent,
        answered,
        executed,
        repeated,
        passed,
        changed,
        read,
        stranger,
        denied,
        ended,
        told,
        next,
    })
}

/// Makes all calls, and returns the number of right answers.
fn call_all(vault: &DemoClient) -> u32 {
    let is_right = |number: &u32| {
        vault.count(*number).is_ok_and(|result| result == *number)
            && vault.echo(SECRET).is_ok_and(|result| result == SECRET)
    };
    let call_some = |first| (first..CALLS).step_by(CALLERS as usize).filter(is_right).count() as u32;
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS).map(|first| scope.spawn(move || call_some(first))).collect();
        callers.into_iter().map(|caller| caller.join().unwrap_or(0)).sum()
    })
}

/// Calls the vault with other keys: those of this directory. The environment's keys go before a program's, so
/// another process makes the call.
fn call_as_stranger(keys: &Path) -> Outcome<Ended> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.args(["--json", "call", VAULT_NAME, "null"]).env(SETTING, keys).output()?;
    let said: Value = serde_json::from_slice(&output.stderr).unwrap_or_default();
    Ok(Ended::read(&said["error"]))
}
