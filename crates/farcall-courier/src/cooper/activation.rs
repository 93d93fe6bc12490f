//! The first message of a connection, a program's name, and its answer.

use crate::dialect::message::string;

/// The answer that the program is there.
pub(super) const ACTIVATED: [u8; 1] = [0];
/// The answer that no program has the name.
pub(super) const UNKNOWN: &[u8] = b"Unknown Courier program.\n\0";
/// The answer that the program cannot be started at the moment.
pub(super) const TRY_AGAIN: &[u8] = b"Try again.\n\0";
/// The most bytes of a program's name.
pub(super) const MAX_NAME_BYTES: usize = 255;
/// The most bytes of a refusal.
pub(super) const MAX_REFUSAL_BYTES: usize = 1024;

/// Checks a program's name.
///
/// # Errors
/// Why it cannot be one.
pub(super) fn check(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.contains('\0') {
        return Err(format!("a program's name has 1 to {MAX_NAME_BYTES} bytes without NUL, not {name:?}"));
    }
    Ok(())
}

/// Returns the message that activates a program.
pub(super) fn message(name: &str) -> Vec<u8> {
    string(name)
}

/// What a server has answered, as far as it has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// More bytes are needed.
    Incomplete,
    Activated,
    /// The program is not activated, for the reason that the text says.
    Refused(String),
    /// The bytes are no answer.
    Malformed,
}

/// Parses the bytes that have come. `is_end` says that no more will come.
pub(super) fn answer(bytes: &[u8], is_end: bool) -> Answer {
    let (text, rest) = match bytes.iter().position(|byte| *byte == 0) {
        Some(place) => (&bytes[..place], &bytes[place + 1..]),
        None if is_end && !bytes.is_empty() => (bytes, &[][..]),
        None if bytes.len() > MAX_REFUSAL_BYTES => return Answer::Malformed,
        None => return Answer::Incomplete,
    };
    match text.is_empty() {
        // A server does not speak before it is called.
        true if !rest.is_empty() => Answer::Malformed,
        true => Answer::Activated,
        false => Answer::Refused(String::from_utf8_lossy(text).trim().escape_debug().to_string()),
    }
}
