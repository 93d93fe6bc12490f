//! The line of an entry in a registry's file, and files of format 1, in which all lines are entries.
//!
//! ```text
//! farcall-names 1 57
//! FileAccess/ebbets udp://127.0.0.1:7000 export=5eed000000000001 owner=4711,99001,8f…,4026531836 revision=57 fingerprints=0:1f…:3c…,1:2e…:4b… proof=010b…
//! end 1
//! ```
//!
//! The first line has the version of the format and the version of the registry's content. The last line has
//! the number of entries, so that the parser notices a truncated file. The fields `fingerprints` and
//! `proof` are omitted when they are empty. The parser accepts any bytes, and returns a table or a [`Fault`] in
//! linear time. It needs at most a few times the memory of its input.
//!
//! Format 1 is only read: the next writer replaces the file by one of format 2 (`log`).

use std::fmt::Write as _;
use std::str::FromStr;

use farcall_base::work;

use crate::entry::{MAX_ADDRESSES, MAX_FINGERPRINTS, MAX_PROOF};
use crate::table::{Held, MAX_VERSION, Table};
use crate::{Address, Entry, Fingerprint, Label, Owner};

/// The maximum size of a registry's file in bytes. Its entries have at most half of it.
pub const MAX_FILE: usize = 64 << 20;

/// What every registry's file begins with.
pub(crate) const MAGIC: &str = "farcall-names";

/// The version of the format that this module reads.
const VERSION: &str = "1";

/// An error in a registry's file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The format has an unknown version.
    Version(String),
    /// A line, counted from 1, cannot be parsed.
    Line(usize, String),
}

/// Returns the line of an entry, without a line feed.
pub(crate) fn line(Held { entry, revision }: &Held) -> String {
    let Owner { pid, started, boot, namespace } = entry.owner;
    let mut text = String::with_capacity(192 + 40 * entry.fingerprints.len() + 2 * entry.proof.len());
    push(&mut text, format_args!("{}/{} {}", entry.type_name, entry.instance, entry.address));
    for address in &entry.other_addresses {
        push(&mut text, format_args!(",{address}"));
    }
    push(&mut text, format_args!(" export={:016x}", entry.export));
    push(&mut text, format_args!(" owner={pid},{started},{boot:016x},{namespace} revision={revision}"));
    for (i, Fingerprint { number, types, name }) in entry.fingerprints.iter().enumerate() {
        let before = if i == 0 { " fingerprints=" } else { "," };
        push(&mut text, format_args!("{before}{number}:{types:016x}:{name:016x}"));
    }
    for (i, byte) in entry.proof.iter().enumerate() {
        let before = if i == 0 { " proof=" } else { "" };
        push(&mut text, format_args!("{before}{byte:02x}"));
    }
    text
}

fn push(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    let _ = text.write_fmt(what);
}

/// Returns the version of the format of a registry's file, if it begins as one.
pub(crate) fn version_of(bytes: &[u8]) -> Option<&str> {
    let version = bytes.strip_prefix(MAGIC.as_bytes())?.strip_prefix(b" ")?;
    let end = version.iter().take(16).position(|byte| matches!(byte, b' ' | b'\n'))?;
    str::from_utf8(&version[..end]).ok()
}

/// Parses a file of format 1.
pub(crate) fn parse(bytes: &[u8]) -> Result<Table, Fault> {
    let text = text(bytes, MAX_FILE).map_err(|(line, why)| Fault::Line(line, why))?;
    let mut lines = text.split_inclusive('\n').zip(1..);

    let (first, _) = lines.next().unwrap_or(("", 1));
    let mut table = Table::at_version(parse_first(first)?);
    for (line, number) in lines.by_ref() {
        work::steps(1 + line.len() / 16);
        if let Some(count) = line.strip_prefix("end ") {
            check_end(count, table.len()).map_err(|why| Fault::Line(number, why))?;
            return match lines.next() {
                None => Ok(table),
                Some((_, number)) => {
                    Err(Fault::Line(number, "nothing may follow the line \"end\"".to_owned()))
                }
            };
        }
        let held = whole_line(line).and_then(parse_entry).map_err(|why| Fault::Line(number, why))?;
        if !table.restore(held) {
            return Err(Fault::Line(number, "an earlier line has the same name".to_owned()));
        }
    }
    let number = text.split_inclusive('\n').count() + 1;
    Err(Fault::Line(number, "the line \"end\" is missing; the file is truncated".to_owned()))
}

/// Returns the text of a file of at most `limit` bytes.
///
/// # Errors
/// The line, counted from 1, and what is wrong there.
pub(crate) fn text(bytes: &[u8], limit: usize) -> Result<&str, (usize, String)> {
    if bytes.len() > limit {
        return Err((1, format!("the file has more than {limit} bytes")));
    }
    str::from_utf8(bytes).map_err(|why| {
        let line = 1 + bytes[..why.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        (line, "it is not UTF-8 text".to_owned())
    })
}

/// Parses the first line. Returns the registry's version.
fn parse_first(line: &str) -> Result<u64, Fault> {
    let fault = || Fault::Line(1, format!("a registry begins with \"{MAGIC} {VERSION}\" and its version"));
    let mut words = line.strip_suffix('\n').ok_or_else(fault)?.split(' ');
    if words.next() != Some(MAGIC) {
        return Err(fault());
    }
    match words.next() {
        Some(VERSION) => {}
        Some(other) => return Err(Fault::Version(other.chars().take(16).collect())),
        None => return Err(fault()),
    }
    match (words.next().and_then(decimal), words.next()) {
        (Some(version), None) if version <= MAX_VERSION => Ok(version),
        (Some(_), None) => Err(Fault::Line(1, format!("the version is greater than {MAX_VERSION}"))),
        _ => Err(fault()),
    }
}

fn check_end(count: &str, found: usize) -> Result<(), String> {
    match decimal::<usize>(whole_line(count)?) {
        Some(count) if count == found => Ok(()),
        Some(count) => Err(format!("the line \"end\" announces {count} entries, but the file has {found}")),
        None => Err("a number must follow \"end\"".to_owned()),
    }
}

fn whole_line(line: &str) -> Result<&str, String> {
    line.strip_suffix('\n').ok_or_else(|| "the line is truncated".to_owned())
}

/// The fields of an entry after its name and address.
#[derive(Default)]
struct Fields {
    export: Option<u64>,
    owner: Option<Owner>,
    revision: Option<u64>,
    fingerprints: Option<Vec<Fingerprint>>,
    proof: Option<Vec<u8>>,
}

/// Parses the line of an entry.
pub(crate) fn parse_entry(line: &str) -> Result<Held, String> {
    let mut words = line.split(' ');
    let (type_name, instance) = parse_names(words.next().unwrap_or_default())?;
    let mut addresses = words.next().ok_or("the address is missing")?.split(',');
    let address = parse_name(addresses.next().unwrap_or_default())?;
    let other_addresses: Vec<Address> =
        addresses.by_ref().take(MAX_ADDRESSES - 1).map(parse_name).collect::<Result<_, _>>()?;
    if addresses.next().is_some() {
        return Err(format!("it has more than {MAX_ADDRESSES} addresses"));
    }

    let mut fields = Fields::default();
    for word in words {
        fields.set(word)?;
    }
    let entry = Entry {
        type_name,
        instance,
        address,
        other_addresses,
        export: fields.export.ok_or("the field \"export\" is missing")?,
        fingerprints: fields.fingerprints.unwrap_or_default(),
        proof: fields.proof.unwrap_or_default(),
        owner: fields.owner.ok_or("the field \"owner\" is missing")?,
        by_type: false,
    };
    Ok(Held { entry, revision: fields.revision.ok_or("the field \"revision\" is missing")? })
}

/// Parses a type and an instance.
pub(crate) fn parse_names(name: &str) -> Result<(Label, Label), String> {
    let (type_name, instance) = name.split_once('/').ok_or("an entry begins with TYPE/INSTANCE")?;
    Ok((parse_name(type_name)?, parse_name(instance)?))
}

fn parse_name<T: FromStr<Err = crate::NameError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|e: crate::NameError| e.to_string())
}

impl Fields {
    fn set(&mut self, word: &str) -> Result<(), String> {
        let shown = || word.chars().take(16).collect::<String>();
        let (field, value) =
            word.split_once('=').ok_or_else(|| format!("{:?} is not FIELD=VALUE", shown()))?;
        let bad = || format!("the field {field:?} has a bad value");
        match field {
            "export" => once(field, &mut self.export, hex(value).ok_or_else(bad)?),
            "owner" => once(field, &mut self.owner, owner(value).ok_or_else(bad)?),
            "revision" => once(field, &mut self.revision, decimal(value).ok_or_else(bad)?),
            "fingerprints" => once(field, &mut self.fingerprints, fingerprints(value).ok_or_else(bad)?),
            "proof" => once(field, &mut self.proof, proof(value).ok_or_else(bad)?),
            _ => Err(format!("{:?} is an unknown field", shown())),
        }
    }
}

fn once<T>(field: &str, place: &mut Option<T>, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("the field {field:?} occurs twice")),
    }
}

fn owner(value: &str) -> Option<Owner> {
    let mut parts = value.split(',');
    let owner = Owner {
        pid: decimal(parts.next()?)?,
        started: decimal(parts.next()?)?,
        boot: hex(parts.next()?)?,
        namespace: decimal(parts.next()?)?,
    };
    parts.next().is_none().then_some(owner)
}

fn fingerprints(value: &str) -> Option<Vec<Fingerprint>> {
    let pairs = value.split(',').take(MAX_FINGERPRINTS + 1).map(|pair| {
        let (number, hashes) = pair.split_once(':')?;
        let (types, name) = hashes.split_once(':')?;
        Some(Fingerprint { number: decimal(number)?, types: hex(types)?, name: hex(name)? })
    });
    let pairs: Vec<_> = pairs.collect::<Option<_>>()?;
    (pairs.len() <= MAX_FINGERPRINTS).then_some(pairs)
}

fn proof(value: &str) -> Option<Vec<u8>> {
    let digits = value.as_bytes();
    if digits.is_empty() || !digits.len().is_multiple_of(2) || digits.len() / 2 > MAX_PROOF {
        return None;
    }
    let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|n| u8::try_from(n).ok());
    digits.chunks_exact(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(pair[1])?)).collect()
}

/// Parses a decimal number. Unlike `parse` alone, it accepts no sign.
pub(crate) fn decimal<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()))
}

/// Parses exactly 16 hexadecimal digits.
pub(crate) fn hex(text: &str) -> Option<u64> {
    let digits = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok()).flatten()
}

#[cfg(test)]
pub(crate) mod tests;
