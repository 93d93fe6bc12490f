//! The identity and the conversations of a server: asks for them, and prints them.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use farcall::dynamic::{Conversation, Conversations, conversations};
use farcall::{Kind, Runtime};
use serde_json::{Value, json};

use crate::text::{count, duration, printable, rounded};

/// How long to wait for a server's conversations. They are asked for by an ordinary call, which a server
/// cannot answer while all of its threads are stuck.
const WITHIN: Duration = Duration::from_secs(1);

/// Returns the conversations of the server at an address; `None` if it is of a version that shows none.
pub fn conversations_of(runtime: &Runtime, address: SocketAddr) -> farcall::Result<Option<Conversations>> {
    match conversations(runtime, address, WITHIN) {
        Err(farcall::Error::CallFailed(why)) if why.kind() == Kind::NoSuchProcedure => Ok(None),
        asked => asked.map(Some),
    }
}

/// Returns the text that shows who a server is, and at most `most` of its conversations.
pub fn conversations_table(shown: Option<&Conversations>, most: usize) -> String {
    let Some(Conversations { level, identity, conversations, untold, .. }) = shown else {
        return String::new();
    };
    let mut page = String::new();
    let mut line = |text: String| {
        let _ = writeln!(page, "{}", printable(&text));
    };
    let Some(identity) = identity else {
        return format!("level {}, no keys: clients are not known\n", level.word());
    };
    let names = match &identity.principals[..] {
        [] => String::new(),
        names => format!(" as {}", names.join(", ")),
    };
    line(format!("level {}, key {}{names}", level.word(), BASE64.encode(identity.key)));
    if !conversations.is_empty() {
        line(format!(
            "{:>7} {:>8} {:>13} {:>17} {:>9} {:>6}  CLIENT",
            "RUNNING", "HEARD", "LEVEL", "SUITE", "HANDSHAKE", "PHASE"
        ));
    }
    for one in conversations.iter().take(most) {
        let Conversation { client, level, principal, suite, handshake, phase, running, heard, .. } = one;
        line(format!(
            "{:>7} {:>8} {:>13} {suite:>17} {:>9} {phase:>6}  {principal} at {client}",
            count(u64::from(*running)),
            duration(*heard),
            level.word(),
            duration(*handshake),
        ));
    }
    let more = conversations.len().saturating_sub(most) as u64 + u64::from(*untold);
    if more > 0 {
        line(format!("{more} more conversations, which are less busy"));
    }
    page
}

/// Returns what `--json` prints of a server's identity and its conversations.
pub fn conversations_json(shown: Option<&Conversations>) -> Value {
    let Some(Conversations { level, identity, conversations, untold, .. }) = shown else {
        return Value::Null;
    };
    let seconds = |time: Duration| rounded(time.as_secs_f64(), 3);
    let conversation = |one: &Conversation| {
        json!({
            "client": one.client.to_string(), "level": one.level.word(), "principal": one.principal,
            "key": BASE64.encode(one.key), "suite": one.suite, "handshake_age_s": seconds(one.handshake),
            "phase": one.phase, "running": one.running, "heard_s": seconds(one.heard),
        })
    };
    json!({
        "level": level.word(),
        "identity": identity.as_ref().map(|identity| json!({
            "key": BASE64.encode(identity.key), "principals": identity.principals,
        })),
        "conversations": conversations.iter().map(conversation).collect::<Vec<_>>(),
        "untold": untold,
    })
}
