//! A call and a reply in Cooper's dialect.
//!
//! ```text
//! call     procedure (one word), number of words (one word), the words of the arguments
//! reply    number of words (one word), the words of the result
//! ```
//!
//! A call names neither a program nor a version, and has no identifier. There is no message for an error, nor
//! for an unknown procedure.

/// The bytes before the arguments of a call.
pub(crate) const CALL_HEADER_BYTES: usize = 4;
/// The bytes before the result in a reply.
pub(crate) const REPLY_HEADER_BYTES: usize = 2;
/// The most bytes of arguments and results: 65,535 words.
pub(crate) const MAX_DATA_BYTES: usize = 65_535 * 2;
/// The memory for a message that is kept for the next one.
const KEPT_BYTES: usize = 64 << 10;

/// The beginning of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallHeader {
    pub(crate) procedure: u16,
    /// The number of bytes of the arguments.
    pub(crate) bytes: usize,
}

impl CallHeader {
    pub(crate) fn parse(header: [u8; CALL_HEADER_BYTES]) -> CallHeader {
        let [a, b, c, d] = header;
        CallHeader {
            procedure: u16::from_be_bytes([a, b]),
            bytes: usize::from(u16::from_be_bytes([c, d])) * 2,
        }
    }

    /// Returns the bytes of a header. There are an even number of arguments' bytes, at most
    /// [`MAX_DATA_BYTES`].
    pub(crate) fn to_bytes(self) -> [u8; CALL_HEADER_BYTES] {
        let ([a, b], [c, d]) = (self.procedure.to_be_bytes(), words(self.bytes));
        [a, b, c, d]
    }
}

/// Replaces `message` by that of a call. The words of the arguments have an even number of bytes, at most
/// [`MAX_DATA_BYTES`].
pub(crate) fn write_call(message: &mut Vec<u8>, procedure: u16, words: &[u8]) {
    message.clear();
    message.shrink_to(KEPT_BYTES);
    message.extend(CallHeader { procedure, bytes: words.len() }.to_bytes());
    message.extend(words);
}

/// Returns the beginning of a reply with so many bytes of a result: an even number, at most
/// [`MAX_DATA_BYTES`].
pub(crate) fn reply_header(bytes: usize) -> [u8; REPLY_HEADER_BYTES] {
    words(bytes)
}

/// Returns how many bytes follow the beginning of a reply.
pub(crate) fn reply_bytes(header: [u8; REPLY_HEADER_BYTES]) -> usize {
    usize::from(u16::from_be_bytes(header)) * 2
}

fn words(bytes: usize) -> [u8; 2] {
    debug_assert!(bytes.is_multiple_of(2) && bytes <= MAX_DATA_BYTES);
    ((bytes / 2) as u16).to_be_bytes()
}

/// Returns a name as a STRING: the count of its bytes, the bytes, and a byte of padding if they are odd. The
/// name has at most 65,535 bytes.
pub(crate) fn string(name: &str) -> Vec<u8> {
    let mut bytes = (name.len() as u16).to_be_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    bytes
}
