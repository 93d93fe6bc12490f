//! Names in DNS.

use std::fmt;

use crate::Label;
use crate::name::Host;

/// The longest part of a name, between its dots.
const MAX_PART: usize = 63;

/// A name in DNS that consists of letters, digits, `_` and `-`, in lower case, because DNS ignores case. It
/// has no dot at its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Domain(Box<str>);

impl Domain {
    /// Parses the name of a domain or a host as users write it.
    pub(super) fn parse(text: &str) -> Option<Domain> {
        Host::parse(text).map(|host| Domain(host.as_str().to_ascii_lowercase().into()))
    }

    /// Returns the name of the SRV records of a type. `None` if no such name can exist.
    pub(super) fn of_service(type_name: &Label, domain: &Domain) -> Option<Domain> {
        let type_name = type_name.as_str();
        if type_name.contains('.') || type_name.len() >= MAX_PART || type_name.ends_with('-') {
            return None;
        }
        Domain::parse(&format!("_{type_name}._udp.{domain}"))
    }

    /// Returns the domain that these parts form. `None` if it has none, or other letters.
    pub(super) fn of_parts<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Option<Domain> {
        let mut text = String::new();
        for part in parts {
            let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
            if !part.iter().all(is_plain) {
                return None;
            }
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(str::from_utf8(part).ok()?);
        }
        text.make_ascii_lowercase();
        (!text.is_empty()).then(|| Domain(text.into()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the name always means the machine itself (RFC 6761, 6.3).
    pub(super) fn is_localhost(&self) -> bool {
        self.as_str() == "localhost" || self.as_str().ends_with(".localhost")
    }

    /// Returns the part before the first dot.
    pub(super) fn first_part(&self) -> &str {
        self.0.split('.').next().unwrap_or_default()
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_services_in_lower_case_if_dns_can_hold_them() {
        let domain = Domain::parse("Example.org").unwrap();
        let service = |type_name: &str| Domain::of_service(&type_name.parse().unwrap(), &domain);
        assert_eq!(service("FileAccess").unwrap().as_str(), "_fileaccess._udp.example.org");
        assert_eq!(service("File-Access_2").unwrap().as_str(), "_file-access_2._udp.example.org");
        assert!(service(&"x".repeat(62)).is_some());
        for absent in ["File.Access", &"x".repeat(63), "x-"] {
            assert_eq!(service(absent), None, "{absent}");
        }
    }
}
