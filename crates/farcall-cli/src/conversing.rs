//! The identity and the conversations of a server: asks for them, and prints them.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use farcall::dynamic::{Conversation, Conversations, conversations};
use farcall::{Kind, Runtime};
use serde_json::{Value, json};

use crate::text::{count, printable, rounded};

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
    for fault in &identity.faults {
        line(format!("a key file has a fault, and gives nothing new: {fault}"));
    }
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
            age(*heard),
            level.word(),
            age(*handshake),
        ));
    }
    let more = conversations.len().saturating_sub(most) as u64 + u64::from(*untold);
    if more > 0 {
        line(format!("{more} more conversations, which are less busy"));
    }
    page
}

/// Returns how long ago something was, in the unit that gives two digits.
fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..100 => format!("{seconds} s"),
        100..6_000 => format!("{} min", seconds / 60),
        6_000..360_000 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", count(seconds / 86_400)),
    }
}

/// Returns what `--json` prints of a server's identity and its conversations.
pub fn conversations_json(shown: Option<&Conversations>) -> Value {
    let Some(Conversations { level, identity, conversations, untold, .. }) = shown else {
        return Value::Null;
    };
    let conversation = |one: &Conversation| {
        json!({
            "client": one.client.to_string(), "level": one.level.word(), "principal": one.principal,
            "key": BASE64.encode(one.key), "suite": one.suite, "handshake_age_s": one.handshake.as_secs(),
            "phase": one.phase, "running": one.running, "heard_s": rounded(one.heard.as_secs_f64(), 1),
        })
    };
    json!({
        "level": level.word(),
        "identity": identity.as_ref().map(|identity| json!({
            "key": BASE64.encode(identity.key), "principals": identity.principals,
            "key_file_faults": identity.faults,
        })),
        "conversations": conversations.iter().map(conversation).collect::<Vec<_>>(),
        "untold": untold,
    })
}

#[cfg(test)]
mod tests {
    use farcall::xdr::{Encode, Encoder};

    use super::*;

    #[test]
    fn ages_are_short() {
        let ages = [0, 99, 100, 5_999, 6_000, 43_200, 360_000, u64::MAX];
        let shown = ages.map(|seconds| age(Duration::from_secs(seconds)));
        let expected = ["0 s", "99 s", "1 min", "99 min", "1 h", "12 h", "4 d"];
        assert_eq!(shown[..7], expected);
        assert!(shown[7].ends_with(" d"));
    }

    #[test]
    fn a_server_that_invents_conversations_forges_no_lines_and_at_most_so_many_are_shown() {
        assert_eq!(conversations_table(None, 8), "");
        let forged = "x\n127.0.0.1:1  process 1\u{1b}[2J";
        let conversation = |e: &mut Encoder<'_>| {
            e.sized(|e| {
                "127.0.0.1:1".parse::<SocketAddr>().unwrap().encode(e)?;
                "a level of a later version".encode(e)?;
                (forged, [7u8; 32], forged).encode(e)?;
                (Duration::MAX, u32::MAX, u32::MAX, Duration::MAX).encode(e)
            })
        };
        let mut bytes = Vec::new();
        let encoded = Encoder::new(&mut bytes).sized(|e| {
            "secure".encode(e)?;
            1u32.encode(e)?;
            e.sized(|e| ([7u8; 32], vec![forged; 2]).encode(e))?;
            20u32.encode(e)?;
            (0..20).try_for_each(|_| conversation(e))?;
            u32::MAX.encode(e)
        });
        encoded.unwrap();
        let shown: Conversations = farcall::xdr::from_slice(&bytes).unwrap();
        let text = conversations_table(Some(&shown), 8);
        assert_eq!(text.lines().count(), 2 + 8 + 1, "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(text.contains("         open "), "a level that is not known is taken for none: {text}");
        let json = conversations_json(Some(&shown));
        assert_eq!(json["conversations"].as_array().unwrap().len(), 20);
    }
}
