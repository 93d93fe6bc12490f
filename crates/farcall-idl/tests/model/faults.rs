//! The faults of a text, for the tests of `.cr` and `.rpc2` files.

use farcall_idl::language::tree::Specification;
use farcall_idl::x::Diagnostics;

/// Returns the message of the only fault, and the text that it underlines.
#[track_caller]
pub fn only_fault(outcome: Result<Specification, Diagnostics>) -> (String, String) {
    let why = outcome.unwrap_err();
    let all: Vec<_> = why.iter().collect();
    let [only] = all.as_slice() else { panic!("{why}") };
    let shown = only.to_string();
    let mark = shown.lines().find_map(|line| Some((line.find('^')?, line.matches('^').count())));
    let line = shown.lines().find(|line| line.starts_with(&format!("{} |", only.line())));
    let marked = line.zip(mark).and_then(|(line, (start, length))| line.get(start..start + length));
    (only.message().to_owned(), marked.unwrap_or_default().to_owned())
}

/// Asserts that each text has one fault, with its message and with the part that is underlined.
#[track_caller]
pub fn each_has_its_fault(
    texts: &[(&str, &str, &str)],
    read: impl Fn(&str) -> Result<Specification, Diagnostics>,
) {
    for (text, message, marked) in texts {
        assert_eq!(only_fault(read(text)), (message.to_string(), marked.to_string()), "{text}");
    }
}

/// Asserts that of a hundred faults, one in each line, a few are told.
#[track_caller]
pub fn not_all_are_told(
    line: impl Fn(usize) -> String,
    read: impl Fn(&str) -> Result<Specification, Diagnostics>,
) {
    let lines: Vec<String> = (0..100).map(line).collect();
    assert_eq!(read(&lines.join("\n")).unwrap_err().iter().count(), 16);
}
