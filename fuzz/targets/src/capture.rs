//! Captured packets: what `farcall dump` reads.

use farcall_cli::capture::{self, Unreadable};
use farcall_proto::dump::dump;

/// A file in the format of pcap or pcapng, each datagram shown.
pub fn capture(data: &[u8]) {
    if !capture::is_one(data) {
        return;
    }
    let mut datagrams = 0;
    let _ = capture::read::<Unreadable>(data, &mut |captured| {
        datagrams += 1;
        assert!(datagrams <= data.len() && captured.bytes.len() <= data.len(), "more than there is");
        let _ = dump(captured.bytes).map(|shown| shown.to_string());
        Ok(())
    });
}
