//! Names of principals, and patterns of the names that exports have.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use crate::text::shown;

/// The maximum length of a principal's name in bytes.
pub const MAX_PRINCIPAL_BYTES: usize = 64;

/// The maximum length of a type or an instance in bytes, as in `farcall-names`.
const MAX_LABEL_BYTES: usize = 128;

/// The name of a principal: 1 to 64 letters, digits and `-_.@/:`.
///
/// ```
/// use farcall_keys::PrincipalName;
///
/// assert_eq!(&**"alice@example.org".parse::<PrincipalName>()?, "alice@example.org");
/// assert!("two words".parse::<PrincipalName>().is_err());
/// # Ok::<(), farcall_keys::NameFault>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrincipalName(Arc<str>);

/// A name, or the beginning of one with `*` behind it, or `*` alone, which stands for any name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pattern {
    start: Arc<str>,
    /// Whether anything may follow.
    open: bool,
}

/// Names of exports: a type, or `*` for any, and an instance, a beginning of instances, or `*`.
///
/// Its text is `TYPE/INSTANCE`; `TYPE` alone means all instances of the type, and `*` means every name.
///
/// ```
/// use farcall_keys::Scope;
///
/// let scope: Scope = "Store/replica-*".parse()?;
/// assert!(scope.covers("Store", "replica-7") && !scope.covers("Store", "main"));
/// assert!("Store".parse::<Scope>()?.covers("Store", "main"));
/// # Ok::<(), farcall_keys::NameFault>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// The type, or `*`. It is never a beginning of types.
    type_name: Pattern,
    instance: Pattern,
}

impl PrincipalName {
    /// Returns the name, which clones share.
    pub fn shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl Pattern {
    /// Returns the pattern that every name fits.
    pub fn any() -> Pattern {
        Pattern { start: "".into(), open: true }
    }

    /// Returns whether the name fits.
    pub fn fits(&self, name: &str) -> bool {
        if self.open { name.starts_with(&*self.start) } else { name == &*self.start }
    }

    /// Returns whether every name fits that fits the other pattern.
    fn includes(&self, other: &Pattern) -> bool {
        if self.open { other.start.starts_with(&*self.start) } else { self == other }
    }

    /// Returns whether every name fits.
    pub fn is_any(&self) -> bool {
        self.open && self.start.is_empty()
    }

    /// Returns the only name that fits, if there is only one.
    pub fn exact(&self) -> Option<&str> {
        (!self.open).then_some(&*self.start)
    }

    /// Parses a pattern of types or instances.
    pub(crate) fn label(text: &str) -> Result<Pattern, NameFault> {
        const EXPECTED: &str = "at most 128 letters, digits and ._-, the first no . or -; a * may follow";
        Pattern::parse(text, is_label).ok_or_else(|| NameFault::new(EXPECTED, text))
    }

    /// Parses a pattern of principals.
    pub(crate) fn principal(text: &str) -> Result<Pattern, NameFault> {
        Pattern::parse(text, is_principal).ok_or_else(|| {
            NameFault::new("a principal, a beginning of principals with a * behind it, or *", text)
        })
    }

    /// Parses a pattern of procedures, which have the names of Rust's functions.
    pub(crate) fn procedure(text: &str) -> Result<Pattern, NameFault> {
        Pattern::parse(text, is_label).ok_or_else(|| {
            NameFault::new("a procedure, a beginning of procedures with a * behind it, or *", text)
        })
    }

    fn parse(text: &str, is_name: fn(&str) -> bool) -> Option<Pattern> {
        let (start, open) = text.strip_suffix('*').map_or((text, false), |start| (start, true));
        let is_sound = is_name(start) || open && start.is_empty();
        is_sound.then(|| Pattern { start: start.into(), open })
    }
}

impl Scope {
    /// Returns the scope of every name.
    pub fn any() -> Scope {
        Scope { type_name: Pattern::any(), instance: Pattern::any() }
    }

    /// Returns the scope of a type and an instance, each a name or a pattern.
    ///
    /// # Errors
    /// If one of them is malformed, or the type is a beginning of types.
    pub fn new(type_name: &str, instance: &str) -> Result<Scope, NameFault> {
        let type_pattern = Pattern::label(type_name)?;
        if type_pattern.open && !type_pattern.is_any() {
            return Err(NameFault::new("a whole type, or *", type_name));
        }
        Ok(Scope { type_name: type_pattern, instance: Pattern::label(instance)? })
    }

    /// Returns the type's pattern: a whole type, or `*`.
    pub fn type_name(&self) -> &Pattern {
        &self.type_name
    }

    /// Returns the instance's pattern.
    pub fn instance(&self) -> &Pattern {
        &self.instance
    }

    /// Returns whether it has this name.
    pub fn covers(&self, type_name: &str, instance: &str) -> bool {
        self.type_name.fits(type_name) && self.instance.fits(instance)
    }

    /// Returns whether it has every name that the other scope has.
    pub fn includes(&self, other: &Scope) -> bool {
        self.type_name.includes(&other.type_name) && self.instance.includes(&other.instance)
    }

    /// Returns whether it has a name that an importer asks for. An empty instance asks for any instance of
    /// the type, and an empty type for anything.
    pub fn meets(&self, type_name: &str, instance: &str) -> bool {
        type_name.is_empty()
            || self.type_name.fits(type_name) && (instance.is_empty() || self.instance.fits(instance))
    }
}

fn is_label(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=MAX_LABEL_BYTES).contains(&text.len()) && text.bytes().all(is_plain) && !text.starts_with(['.', '-'])
}

fn is_principal(text: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@' | b'/' | b':');
    (1..=MAX_PRINCIPAL_BYTES).contains(&text.len()) && text.bytes().all(is_plain)
}

/// Why a text is not the name or the pattern that is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameFault {
    pub(crate) expected: &'static str,
    pub(crate) found: String,
}

impl NameFault {
    fn new(expected: &'static str, found: &str) -> NameFault {
        NameFault { expected, found: shown(found) }
    }
}

impl fmt::Display for NameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}; found {}", self.expected, self.found)
    }
}

impl std::error::Error for NameFault {}

impl FromStr for PrincipalName {
    type Err = NameFault;

    fn from_str(text: &str) -> Result<PrincipalName, NameFault> {
        match is_principal(text) {
            true => Ok(PrincipalName(text.into())),
            false => Err(NameFault::new("a principal: 1 to 64 letters, digits and -_.@/:", text)),
        }
    }
}

impl Deref for PrincipalName {
    type Target = Arc<str>;

    fn deref(&self) -> &Arc<str> {
        &self.0
    }
}

impl FromStr for Scope {
    type Err = NameFault;

    fn from_str(text: &str) -> Result<Scope, NameFault> {
        match text.split_once('/') {
            Some((type_name, instance)) => Scope::new(type_name, instance),
            None => Scope::new(text, "*"),
        }
    }
}

impl fmt::Display for PrincipalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for PrincipalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.open {
            true => write!(f, "{}*", self.start),
            false => f.write_str(&self.start),
        }
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.instance.is_any() {
            true => f.pad(&self.type_name.to_string()),
            false => f.pad(&format!("{}/{}", self.type_name, self.instance)),
        }
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}
