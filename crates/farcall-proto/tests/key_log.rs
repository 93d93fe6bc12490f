//! Captured datagrams of sealed conversations, read by a log of their secrets.
#![cfg(all(feature = "secure", feature = "audit"))]

mod common;

use common::trust::{CLIENT, SERVER, TestTrust, client, server};
use common::*;
use farcall_proto::ClientConfig;
use farcall_proto::dump::dump;
use farcall_proto::key_log::{KeyLog, dump_with};
use farcall_proto::secure::audit::{Audit, exchange};
use farcall_proto::server::Finish;

/// Exchanges datagrams until both ends are silent, and returns all of them.
fn captured(pair: &mut Pair) -> Vec<Datagram> {
    let mut all = Vec::new();
    loop {
        let sent = pair.sent();
        pair.receive(&sent);
        let mut answers = pair.answered();
        for (key, args) in std::mem::take(&mut pair.asked) {
            answers.extend(pair.finish(key, Finish::Result, &args));
        }
        pair.hear(&answers);
        if sent.is_empty() && answers.is_empty() {
            return all;
        }
        all.extend(sent.into_iter().chain(answers));
    }
}

#[test]
fn a_log_opens_all_phases_of_a_conversation_and_what_its_client_resumes() {
    let _ = exchange(Some(Audit::new(3)));
    let trust = TestTrust::new(CLIENT, &[SERVER]);
    let mut pair = Pair::with(ClientConfig { trust: Some(trust.clone()), ..client() }, server());
    let mut datagrams = Vec::new();
    for token in 0..20 {
        if token == 12 {
            pair.server.forget_revoked(pair.now, |_| false);
        }
        pair.start(token, b"call");
        datagrams.extend(captured(&mut pair));
    }
    let lines = trust.log.lock().unwrap().clone();
    assert_eq!(lines.len(), 2, "a handshake, and a resumption");
    let mut log = KeyLog::default();
    log.add("# comment").unwrap();
    lines.iter().for_each(|line| log.add(line).unwrap());
    let count = |frame: &str, log: &mut KeyLog| {
        let read = |datagram: &Datagram| dump_with(datagram, log).unwrap().to_string();
        datagrams.iter().map(read).filter(|text| text.contains(frame)).count()
    };
    // The call that met the forgotten conversation was sent twice, and did not run.
    assert_eq!(count("CALL ", &mut log), 21);
    assert_eq!(count("RESULT ", &mut log), 19);
    let sealed = datagrams.iter().filter(|datagram| dump(datagram).is_err()).count();
    assert!(sealed >= 40, "{sealed}");
    // A changed datagram does not open, and neither does one of another conversation.
    let mut changed = datagrams.iter().rfind(|datagram| dump(datagram).is_err()).unwrap().clone();
    let last = changed.len() - 1;
    changed[last] ^= 1;
    let why = "security scheme 3, which needs keys; the log has none for it";
    assert_eq!(dump_with(&changed, &mut log).unwrap_err().to_string(), why);
    changed[last] ^= 1;
    assert!(dump_with(&changed, &mut log).is_ok());
    assert_eq!(dump_with(&changed, &mut KeyLog::default()).unwrap_err().to_string(), why);
}
