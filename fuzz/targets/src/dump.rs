//! The fuzz target for showing datagrams as text.

use farcall_proto::{dump as datagram, fuzzing};

/// Shows the input as a datagram, and as the frames of a datagram with a valid seal. Also reads the input as
/// hexadecimal digits.
pub fn dump(data: &[u8]) {
    if let Ok(shown) = datagram::dump(data) {
        let _ = shown.to_string();
    }
    let sealed = fuzzing::seal(7, 9, data);
    let shown = datagram::dump(&sealed).expect("the datagram has a valid seal");
    assert_eq!((shown.conversation(), shown.number()), (7, 9));
    let _ = shown.to_string();
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = datagram::from_hex(text);
    }
}
