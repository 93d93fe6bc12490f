//! The document of an entry in etcd: JSON that people can read and other tools can write (docs/names.md).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use farcall_base::work;
use serde_json::{Map, Value, json};

use super::gateway::{encoded, number};
use crate::{Address, Entry, Fingerprint, Label, MAX_ADDRESSES, MAX_FINGERPRINTS, MAX_PROOF, Owner};

/// The longest document that is read, in bytes. An entry with all its fingerprints has about 200 KiB.
pub(super) const MAX_DOCUMENT: usize = 256 << 10;

/// The most addresses of a document that are looked at.
const MAX_ADDRESSES_READ: usize = 64;

/// The names of entries in a store.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// The beginning of all keys, as in `farcall/v1/`.
    base: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Keys {
        Keys { base: format!("{prefix}/v1/") }
    }

    /// Returns the key of an entry.
    pub(super) fn of(&self, type_name: &Label, instance: &Label) -> String {
        format!("{}{type_name}/{instance}", self.base)
    }

    /// Returns the fields of a request for all entries.
    pub(super) fn all(&self) -> Map<String, Value> {
        range(&self.base)
    }

    /// Returns the fields of a request for the entries of a type.
    pub(super) fn of_type(&self, type_name: &Label) -> Map<String, Value> {
        range(&format!("{}{type_name}/", self.base))
    }

    /// Returns the type and the instance of a key. `None` if the key is not that of an entry.
    pub(super) fn parse(&self, key: &[u8]) -> Option<(Label, Label)> {
        let rest = std::str::from_utf8(key).ok()?.strip_prefix(&self.base)?;
        let (type_name, instance) = rest.split_once('/')?;
        Some((type_name.parse().ok()?, instance.parse().ok()?))
    }
}

/// Returns the fields of a request for all keys with a prefix. The end of the range is the prefix with its
/// last byte, which is `/`, plus one.
fn range(prefix: &str) -> Map<String, Value> {
    let end = [&prefix.as_bytes()[..prefix.len() - 1], b"0"].concat();
    let fields = [("key", encoded(prefix)), ("range_end", encoded(end))];
    fields.map(|(name, value)| (name.to_owned(), Value::from(value))).into_iter().collect()
}

/// Returns the document of an entry.
pub(super) fn render(entry: &Entry) -> String {
    let mut document = json!({
        "addresses": entry.addresses().map(Address::to_string).collect::<Vec<_>>(),
        "export": hex(entry.export),
    });
    let Owner { pid, started, boot, namespace } = entry.owner;
    if entry.owner != Owner::NONE {
        document["owner"] =
            json!({"pid": pid, "started": started, "boot": hex(boot), "namespace": namespace});
    }
    if !entry.fingerprints.is_empty() {
        let print = |print: &Fingerprint| json!([print.number, hex(print.types), hex(print.name)]);
        document["fingerprints"] = entry.fingerprints.iter().map(print).collect();
    }
    if !entry.proof.is_empty() {
        document["proof"] = STANDARD.encode(&entry.proof).into();
    }
    document.to_string()
}

/// Reads a document. Fields that this version does not know are ignored, because newer versions may add some.
///
/// # Errors
/// A text that says what is wrong with the document.
pub(super) fn parse(type_name: Label, instance: Label, text: &[u8]) -> Result<Entry, String> {
    if text.len() > MAX_DOCUMENT {
        return Err(format!("it has {} bytes; at most {MAX_DOCUMENT} are allowed", text.len()));
    }
    work::steps(1 + text.len() / 16);
    let document: Value = serde_json::from_slice(text).map_err(|why| format!("it is not JSON: {why}"))?;
    let addresses = document["addresses"].as_array().ok_or("it has no list \"addresses\"")?;
    // Addresses of carriers that this version does not know are passed over.
    let known = |address: &Value| address.as_str()?.parse::<Address>().ok();
    let mut addresses = addresses.iter().take(MAX_ADDRESSES_READ).filter_map(known);
    let address = addresses.next().ok_or("\"addresses\" has none that this version can call")?;
    let export = optional_hex(&document["export"]).ok_or("\"export\" is not a hexadecimal number")?;
    let mut entry = Entry::new(type_name, instance, address, export);
    entry.other_addresses = addresses.take(MAX_ADDRESSES - 1).collect();
    entry.owner = owner(&document["owner"]).ok_or("\"owner\" is not a process")?;
    if let Some(prints) = document["fingerprints"].as_array() {
        if prints.len() > MAX_FINGERPRINTS {
            return Err(format!(
                "it has {} fingerprints; at most {MAX_FINGERPRINTS} are allowed",
                prints.len()
            ));
        }
        let prints = prints.iter().map(fingerprint).collect::<Option<_>>();
        entry.fingerprints = prints.ok_or("a fingerprint is not a number and two hexadecimal numbers")?;
    }
    if let Some(proof) = document["proof"].as_str() {
        let proof = STANDARD.decode(proof).map_err(|why| format!("\"proof\" is not base64: {why}"))?;
        if proof.len() > MAX_PROOF {
            return Err(format!("\"proof\" has {} bytes; at most {MAX_PROOF} are allowed", proof.len()));
        }
        entry.proof = proof;
    }
    Ok(entry)
}

fn fingerprint(value: &Value) -> Option<Fingerprint> {
    let [number, types, name] = &value.as_array()?[..] else { return None };
    let number = u32::try_from(number.as_u64()?).ok()?;
    Some(Fingerprint { number, types: unhex(types.as_str()?)?, name: unhex(name.as_str()?)? })
}

/// Reads the owner. A tool that writes entries need not name one.
fn owner(value: &Value) -> Option<Owner> {
    if value.is_null() {
        return Some(Owner::NONE);
    }
    let pid = u32::try_from(value["pid"].as_u64()?).ok()?;
    let boot = optional_hex(&value["boot"])?;
    Some(Owner { pid, started: number(&value["started"]), boot, namespace: number(&value["namespace"]) })
}

fn optional_hex(value: &Value) -> Option<u64> {
    if value.is_null() { Some(0) } else { unhex(value.as_str()?) }
}

fn hex(number: u64) -> String {
    format!("{number:016x}")
}

fn unhex(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> (Label, Label) {
        ("Store".parse().unwrap(), "a".parse().unwrap())
    }

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let (type_name, instance) = labels();
        let address = "udp://[fd00::7]:7000".parse().unwrap();
        let mut entry = Entry::new(type_name.clone(), instance.clone(), address, u64::MAX);
        entry.other_addresses = vec!["udp://10.0.0.7:7000".parse().unwrap()];
        entry.fingerprints = vec![Fingerprint { number: 3, types: 1, name: 0xabc }];
        entry.proof = vec![1, 2, 3];
        assert_eq!(parse(type_name, instance, render(&entry).as_bytes()), Ok(entry));
    }

    #[test]
    fn a_tool_needs_to_write_an_address_only() {
        let (type_name, instance) = labels();
        let text = br#"{"addresses": ["tls://later", "udp://10.0.0.7:7000"], "since": "today"}"#;
        let entry = parse(type_name, instance, text).unwrap();
        assert_eq!((entry.address.to_string(), entry.export), ("udp://10.0.0.7:7000".to_owned(), 0));
    }

    #[test]
    fn what_is_wrong_in_a_document_is_said() {
        for (text, why) in [
            ("", "not JSON"),
            ("[]", "addresses"),
            (r#"{"addresses": []}"#, "can call"),
            (r#"{"addresses": ["udp://1.2.3.4:5"], "export": 7}"#, "export"),
            (r#"{"addresses": ["udp://1.2.3.4:5"], "owner": 7}"#, "owner"),
            (r#"{"addresses": ["udp://1.2.3.4:5"], "fingerprints": [[1]]}"#, "fingerprint"),
            (r#"{"addresses": ["udp://1.2.3.4:5"], "proof": "?"}"#, "base64"),
        ] {
            let (type_name, instance) = labels();
            let found = parse(type_name, instance, text.as_bytes()).unwrap_err();
            assert!(found.contains(why), "{text}: {found}");
        }
        let (type_name, instance) = labels();
        assert!(parse(type_name, instance, &vec![b' '; MAX_DOCUMENT + 1]).unwrap_err().contains("at most"));
    }

    #[test]
    fn keys_are_parsed_as_they_are_made() {
        let (keys, (type_name, instance)) = (Keys::new("team/farcall"), labels());
        let key = keys.of(&type_name, &instance);
        assert_eq!(key, "team/farcall/v1/Store/a");
        assert_eq!(keys.parse(key.as_bytes()), Some((type_name, instance)));
        for foreign in ["team/farcall/v2/Store/a", "team/farcall/v1/Store", "team/farcall/v1/Store/a/b", "x"]
        {
            assert_eq!(keys.parse(foreign.as_bytes()), None, "{foreign}");
        }
    }
}
