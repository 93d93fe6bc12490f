//! Searches the memory of another process for secrets.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes that are searched for as a whole. A secret is found if one part of it is. Random memory has a
/// certain part with a probability of 2^-64 at each place.
const PART: usize = 8;

/// A secret, and its name for messages.
#[derive(Clone)]
pub struct Secret {
    pub name: String,
    pub bytes: Vec<u8>,
}

/// A part of a secret that was found.
pub struct Found {
    pub name: String,
    /// The part's first byte in the secret.
    part: usize,
    address: u64,
    /// The name of the mapping.
    mapping: String,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Found { name, part, address, mapping } = self;
        write!(f, "bytes of {name} from {part} on are at {address:x} in {mapping}")
    }
}

/// Returns every part of the secrets that is in the writable memory of a process.
///
/// # Errors
/// If the system does not let this process read the other's memory.
pub fn search(process: u32, secrets: &[Secret]) -> std::io::Result<Vec<Found>> {
    let mut parts: HashMap<[u8; PART], (&str, usize)> = HashMap::new();
    let mut begins = vec![false; 1 << 16];
    for secret in secrets {
        let chunks = secret.bytes.chunks_exact(PART).enumerate();
        for (nth, part) in chunks {
            parts.insert(part.try_into().unwrap(), (&secret.name, nth * PART));
            begins[usize::from(u16::from_le_bytes([part[0], part[1]]))] = true;
        }
    }
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps"))?;
    let memory = File::open(format!("/proc/{process}/mem"))?;
    let mut found = Vec::new();
    for line in maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|p| p.starts_with("rw"))) {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let [from, to] = [from, to].map(|end| u64::from_str_radix(end, 16).unwrap());
        let mut bytes = vec![0; (to - from) as usize];
        memory.read_exact_at(&mut bytes, from)?;
        for (at, window) in bytes.windows(PART).enumerate() {
            if begins[usize::from(u16::from_le_bytes([window[0], window[1]]))]
                && let Some((name, part)) = parts.get(window)
            {
                let mapping = line.split_whitespace().nth(5).unwrap_or("memory without a name").into();
                let address = from + at as u64;
                found.push(Found { name: (*name).into(), part: *part, address, mapping });
            }
        }
    }
    Ok(found)
}
