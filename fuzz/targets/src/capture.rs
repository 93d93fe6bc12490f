//! The fuzz target for captured packets, which `farcall dump` reads.

use farcall_cli::capture::{self, Unreadable};
use farcall_proto::dump::dump;

/// Reads a file in the format of pcap or pcapng, and shows each datagram.
pub fn capture(data: &[u8]) {
    if !capture::is_one(data) {
        return;
    }
    let mut datagrams = 0;
    let _ = capture::read::<Unreadable>(data, &mut |captured| {
        datagrams += 1;
        assert!(
            datagrams <= data.len() && captured.bytes.len() <= data.len(),
            "a capture has no more datagrams, and no longer datagrams, than the file has bytes"
        );
        let _ = dump(captured.bytes).map(|shown| shown.to_string());
        Ok(())
    });
}
