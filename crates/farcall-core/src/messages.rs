//! What farcall says on standard error to whoever has started the program.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::Once;

use farcall_idl::printable;

/// Writes a line to standard error. Unlike `eprintln`, it does not panic if standard error is closed. The
/// line may have text of others, such as the error of a registry's server: it cannot control a terminal.
#[cold]
pub fn say(line: impl Display) {
    let _ = writeln!(io::stderr(), "farcall: {}", printable(&line.to_string()));
}

/// Tells of a variable that nothing reads, as an event of `tracing` (feature `tracing`), once in a process.
#[cold]
pub fn note_misspelt(why: &impl Display) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        #[cfg(feature = "tracing")]
        tracing::warn!("{why}");
        #[cfg(not(feature = "tracing"))]
        let _ = why;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_does_not_control_a_terminal() {
        let why = "etcd: \u{1b}]0;gone\u{7}\u{9b}2J\r\nfarcall: all is well\u{202e}é";
        let said = "etcd: \\u{1b}]0;gone\\u{7}\\u{9b}2J\\u{d}\\nfarcall: all is well\\u{202e}é";
        assert_eq!(printable(why), said);
    }
}
