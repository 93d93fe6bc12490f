//! The fuzz target for ONC RPC messages on a stream, as a server or a client receives them.

use farcall_onc::wire::message::{Answer, Call, Reply, peek};
use farcall_onc::wire::record::{Limits, Records};

/// Reads records from a stream. The input is a byte, the length of each read, and the bytes of the stream.
/// The records have no more bytes than the stream, and a message that was parsed is written and parsed again
/// as the same message.
pub fn onc_stream(data: &[u8]) {
    let Some((step, stream)) = data.split_first() else { return };
    let limits = Limits { record: 1 << 16, fragments: 64, ..Limits::default() };
    let (mut records, mut taken) = (Records::new(limits), 0);
    for part in stream.chunks(usize::from(*step).max(1)) {
        records.space()[..part.len()].copy_from_slice(part);
        records.filled(part.len());
        loop {
            match records.next() {
                Ok(Some(record)) => {
                    taken += record.len() + 4;
                    message(&record);
                }
                Ok(None) => break,
                Err(why) => return assert!(!why.to_string().is_empty()),
            }
        }
    }
    assert!(taken <= stream.len());
}

/// Parses a record as a call and as a reply.
fn message(record: &[u8]) {
    let _ = peek(record);
    if let Ok((call, arguments)) = Call::parse(record) {
        let _ = call.credential.credential();
        let mut again = Vec::new();
        call.write(&mut again);
        assert_eq!(Call::parse(&[&again, arguments].concat()).map(|(call, _)| call), Ok(call));
    }
    if let Ok(reply) = Reply::parse(record) {
        let mut again = Vec::new();
        reply.write(&mut again);
        assert_eq!(Reply::parse(&again), Ok(reply));
        if let Answer::Rejected(why) = reply.answer {
            assert!(!format!("{why:?}").is_empty());
        }
    }
}
