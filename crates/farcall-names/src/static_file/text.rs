//! The text of a static registry: a line for each entry, which people write.

use std::collections::BTreeMap;

use farcall_base::work;

use crate::{Address, Entry, Fault, Label, MAX_ADDRESSES, NameError, Owner};

/// The maximum size of the file in bytes.
pub(super) const MAX_FILE: usize = 4 << 20;

const MAX_LINES: usize = 100_000;

/// An error in the text: the line, counted from 1, and what is wrong there.
type Wrong = (usize, String);

/// Parses the text of a file. Returns its entries, by ascending type and instance.
pub(super) fn parse(bytes: &[u8]) -> Result<Vec<Entry>, Wrong> {
    if bytes.len() > MAX_FILE {
        return Err((1, format!("the file has more than {MAX_FILE} bytes")));
    }
    let mut entries = BTreeMap::new();
    for (bytes, number) in bytes.split(|byte| *byte == b'\n').zip(1..) {
        if number > MAX_LINES {
            return Err((number, format!("the file has more than {MAX_LINES} lines")));
        }
        let line = str::from_utf8(bytes).map_err(|_| (number, "it is not UTF-8 text".to_owned()))?;
        let Some(entry) = parse_line(line).map_err(|why| (number, why))? else { continue };
        let name = (entry.type_name.clone(), entry.instance.clone());
        if let Some((_, earlier)) = entries.insert(name, (entry, number)) {
            return Err((number, format!("line {earlier} has the same name")));
        }
    }
    Ok(entries.into_values().map(|(entry, _)| entry).collect())
}

/// Parses a line. Returns `None` if it has no more than a comment.
fn parse_line(line: &str) -> Result<Option<Entry>, String> {
    work::steps(1 + line.len() / 16);
    let mut words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
    let Some(name) = words.next() else { return Ok(None) };
    let (type_name, instance) = name.split_once('/').ok_or("a line begins with TYPE/INSTANCE")?;
    let (type_name, instance) = (label(type_name)?, label(instance)?);
    let mut addresses = words.map(address);
    let first = addresses.next().ok_or("the address is missing, such as udp://10.0.0.7:7000")??;
    let mut entry = Entry::new(type_name, instance, first, 0);
    // One more than is allowed shows that there are too many.
    entry.other_addresses = addresses.take(MAX_ADDRESSES).collect::<Result<_, _>>()?;
    entry.owner = Owner::NONE;
    entry.check().map_err(|why| why.to_string())?;
    Ok(Some(entry))
}

fn label(text: &str) -> Result<Label, String> {
    text.parse().map_err(|why: NameError| why.to_string())
}

fn address(text: &str) -> Result<Address, String> {
    text.parse().map_err(|why: NameError| match why.fault() {
        Fault::Address => {
            let shown: String = text.chars().take(80).collect();
            format!(
                "{shown:?} is no address; a registry has IP addresses with ports, such as udp://10.0.0.7:7000"
            )
        }
        _ => why.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(text: &str) -> Wrong {
        parse(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn comments_blank_lines_and_spaces_are_passed_over() {
        let text =
            "# all\r\n\n  Store/b \tudp://10.0.0.8:7000 # one\r\nStore/a udp://[::1]:7 shm://127.0.0.1:9";
        let entries = parse(text.as_bytes()).unwrap();
        let shown: Vec<String> =
            entries.iter().map(|entry| format!("{} {}", entry.name(), entry.address)).collect();
        assert_eq!(shown, ["Store/a udp://[::1]:7", "Store/b udp://10.0.0.8:7000"]);
        assert_eq!(parse(b"").unwrap(), []);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, line, why) in [
            ("Store udp://10.0.0.8:7000", 1, "TYPE/INSTANCE"),
            ("\nStore/a", 2, "address is missing"),
            ("Store/a # udp://10.0.0.8:7000", 1, "address is missing"),
            ("\n\nStore/a udp://ebbets:7000", 3, "IP addresses with ports"),
            ("Store/a udp://10.0.0.8", 1, "port"),
            ("Store/a 10.0.0.8:7000", 1, "scheme"),
            ("Store/? udp://10.0.0.8:7000", 1, "may not stand"),
            ("S/a udp://10.0.0.8:7000\nS/b udp://10.0.0.8:7000\nS/a udp://10.0.0.9:1", 3, "line 1"),
        ] {
            let (found, said) = wrong(text);
            assert!(found == line && said.contains(why), "{text:?}: {found}: {said}");
        }
        let nine = format!("Store/a{}", " udp://10.0.0.8:7000".repeat(MAX_ADDRESSES + 1));
        assert!(wrong(&nine).1.contains("addresses; at most 8"));
        assert_eq!(parse(b"# x\nStore/\xff udp://10.0.0.8:7000").unwrap_err().0, 2);
    }

    #[test]
    fn a_file_is_read_up_to_its_bounds() {
        assert!(parse(&vec![b' '; MAX_FILE]).is_ok());
        assert!(parse(&vec![b' '; MAX_FILE + 1]).unwrap_err().1.contains("bytes"));
        assert!(parse(&vec![b'\n'; MAX_LINES - 1]).is_ok());
        assert_eq!(parse(&vec![b'\n'; MAX_LINES]).unwrap_err().0, MAX_LINES + 1);
    }

    const NEARLY: &str = "([SA]/[ab] |udp://10.0.0.[12]:7|#|/|\n| ){0,20}";

    proptest::proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }

        #[test]
        fn text_that_is_nearly_right_is_parsed_or_refused(text in NEARLY) {
            if let Ok(entries) = parse(text.as_bytes()) {
                let names = entries.iter().map(|entry| (&entry.type_name, &entry.instance));
                assert!(names.is_sorted_by(|a, b| a < b));
            }
        }
    }
}
