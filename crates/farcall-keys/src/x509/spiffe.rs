//! SPIFFE identifiers: `spiffe://TRUST-DOMAIN/PATH`, as the SPIFFE-ID standard spells them.

/// The maximum length of an identifier, and of a trust domain, in bytes.
const MAX_ID_BYTES: usize = 2048;
const MAX_TRUST_DOMAIN_BYTES: usize = 255;

pub(super) const SCHEME: &str = "spiffe://";

/// The identifier of a workload. Its path is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpiffeId {
    pub(super) trust_domain: String,
    /// Without the slash in front.
    pub(super) path: String,
}

impl SpiffeId {
    /// Reads an identifier, or says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<SpiffeId, &'static str> {
        if text.len() > MAX_ID_BYTES {
            return Err("it has more than 2048 bytes");
        }
        let rest = text.strip_prefix(SCHEME).ok_or("it does not begin with spiffe://")?;
        let (trust_domain, path) = rest.split_once('/').ok_or("it has no path")?;
        if !is_trust_domain(trust_domain) {
            return Err("its trust domain is not 1 to 255 of a-z, 0-9 and .-_");
        }
        match is_path(path) {
            true => Ok(SpiffeId { trust_domain: trust_domain.to_owned(), path: path.to_owned() }),
            false => Err("its path is not made of /-separated words of letters, digits and .-_"),
        }
    }
}

impl std::fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.trust_domain, self.path)
    }
}

pub(super) fn is_trust_domain(text: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_');
    (1..=MAX_TRUST_DOMAIN_BYTES).contains(&text.len()) && text.bytes().all(is_plain)
}

/// Returns whether this is a path, without the slash in front: words with slashes between them.
pub(super) fn is_path(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    text.split('/').all(|word| !word.is_empty() && word != "." && word != ".." && word.bytes().all(is_plain))
}
