//! The lines of key files. In each file `#` begins a comment, and blank lines count for nothing.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::fault::LineFault;
use crate::grant::Grant;
use crate::identity::Identity;
use crate::key::PublicKey;
use crate::name::{PrincipalName, Scope};
use crate::revocation::RevocationList;
use crate::text::shown;

/// The maximum length of a line in bytes.
const MAX_LINE_BYTES: usize = 4 << 10;

const BEGIN: &str = "-----BEGIN FARCALL REVOCATION LIST-----";
const END: &str = "-----END FARCALL REVOCATION LIST-----";

/// The characters of base64 in a line of a revocation list.
const ARMOUR_COLUMNS: usize = 64;

/// A line of `authorities`: `KEY [COMMENT]`, a key whose grants are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// The authority's key.
    pub key: PublicKey,
    /// What people say about it.
    pub comment: String,
}

/// A line of `authorized_keys`: `KEY PRINCIPAL [type=TYPE] [instance=INSTANCE] [COMMENT]`, a client that is
/// known without an authority.
///
/// ```
/// use farcall_keys::AuthorizedKey;
///
/// let line = "6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw= alice type=Store instance=main her laptop";
/// let alice: AuthorizedKey = line.parse()?;
/// assert_eq!((&**alice.principal, alice.comment.as_str()), ("alice", "her laptop"));
/// assert!(alice.scope.covers("Store", "main"));
/// # Ok::<(), farcall_keys::LineFault>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizedKey {
    /// The client's key.
    pub key: PublicKey,
    /// Who it is.
    pub principal: PrincipalName,
    /// What it may import; a [`Policy`](crate::Policy) may narrow that.
    pub scope: Scope,
    /// What people say about it.
    pub comment: String,
}

/// A line of `known_servers`: `NAME KEY [or-granted] [COMMENT]`, a key that may answer for a name: `TYPE`,
/// `TYPE/INSTANCE` or `*`.
///
/// A name that has such a line is answered by its keys only. With `or-granted` in all of its lines, other
/// keys that show a grant may answer, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownServer {
    /// The names for which the key may answer.
    pub scope: Scope,
    /// The server's key.
    pub key: PublicKey,
    /// Whether other keys may answer if they show a grant.
    pub or_granted: bool,
    /// What people say about it.
    pub comment: String,
}

/// Returns the lines that are neither blank nor comments, without their comments, and their numbers from 1.
pub(crate) fn lines(content: &[u8]) -> impl Iterator<Item = Result<(usize, &str), LineFault>> {
    content
        .split(|byte| *byte == b'\n')
        .zip(1..)
        .map(|(line, number)| text_of(line, number))
        .filter(|line| !matches!(line, Ok((_, ""))))
}

/// Returns what a line says before its comment.
fn text_of(line: &[u8], number: usize) -> Result<(usize, &str), LineFault> {
    if line.len() > MAX_LINE_BYTES {
        let expected = format!("a line of at most {MAX_LINE_BYTES} bytes");
        let found = format!("{} bytes", line.len());
        return Err(LineFault::new(expected, found, "break the line, or remove it").at(number));
    }
    let start = line.iter().position(|byte| *byte == b'#').unwrap_or(line.len());
    let Ok(text) = std::str::from_utf8(line.get(..start).unwrap_or_default()) else {
        let advice = "write the file again, as text";
        return Err(LineFault::new("UTF-8", "bytes that are not UTF-8", advice).at(number));
    };
    Ok((number, text.trim()))
}

/// Parses each line, and says which is wrong.
pub(crate) fn parse<T: FromStr<Err = LineFault>>(
    content: &[u8],
) -> impl Iterator<Item = Result<(usize, T), LineFault>> {
    lines(content).map(|line| {
        let (number, text) = line?;
        text.parse().map(|parsed| (number, parsed)).map_err(|why: LineFault| why.at(number))
    })
}

/// Reads an identity's file, which has one line. Errors do not show what the file has.
pub(crate) fn identity(content: &[u8]) -> Result<Identity, LineFault> {
    const EXPECTED: &str = "one line, \"private:\" and 44 characters of base64";
    const ADVICE: &str = "restore the file from a copy, or make a new identity: `farcall keys make`";
    let mut found = lines(content);
    let (number, text) = found.next().ok_or_else(|| LineFault::new(EXPECTED, "no line", ADVICE))??;
    if let Some(more) = found.next() {
        return Err(LineFault::new(EXPECTED, "another line", ADVICE).at(more?.0));
    }
    let unlike =
        || LineFault::new(EXPECTED, format!("another text of {} bytes", text.len()), ADVICE).at(number);
    Identity::from_text(text).ok_or_else(unlike)
}

/// Writes an identity's file.
pub(crate) fn identity_text(identity: &Identity) -> zeroize::Zeroizing<String> {
    let public = identity.public();
    let note = format!("# A private key of farcall: show it to nobody. Its public key is {public}\n");
    let secret = identity.to_text();
    let mut text = zeroize::Zeroizing::new(String::with_capacity(note.len() + secret.len() + 1));
    text.push_str(&note);
    text.push_str(&secret);
    text.push('\n');
    text
}

/// A line of `grants`: a grant in base64, and a comment.
pub(crate) struct GrantLine(pub(crate) Grant);

/// Reads the lists of a file `revoked`, each with the line on which it begins.
pub(crate) fn revocation_lists(content: &[u8]) -> Result<Vec<(usize, RevocationList)>, LineFault> {
    const ADVICE: &str = "ask the authority for its list again (`farcall keys revoke` writes it)";
    let mut lists = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for line in lines(content) {
        let (number, text) = line?;
        open = match (open.take(), text) {
            (None, BEGIN) => Some((number, String::new())),
            (Some((start, base64)), END) => {
                let wrong = |found: String| LineFault::new("a revocation list", found, ADVICE).at(start);
                let bytes = STANDARD.decode(base64).map_err(|why| wrong(format!("no base64 ({why})")))?;
                lists.push((start, RevocationList::decode(&bytes).map_err(|why| wrong(why.to_string()))?));
                None
            }
            (Some((start, mut base64)), text) if text != BEGIN => {
                base64.push_str(text);
                Some((start, base64))
            }
            (None, text) => return Err(LineFault::new(BEGIN, shown(text), ADVICE).at(number)),
            (Some(_), text) => return Err(LineFault::new(END, shown(text), ADVICE).at(number)),
        };
    }
    match open {
        None => Ok(lists),
        Some((start, _)) => Err(LineFault::new(END, "the end of the file", ADVICE).at(start)),
    }
}

/// Writes the text of revocation lists for a file `revoked`.
pub(crate) fn revocation_text<'a>(lists: impl IntoIterator<Item = &'a RevocationList>) -> String {
    let mut text = String::new();
    for list in lists {
        text += &format!("# authority {}, serial {}\n{BEGIN}\n", list.authority(), list.serial());
        let base64 = STANDARD.encode(list.encode());
        let mut rest = base64.as_str();
        while let Some((line, more)) = rest.split_at_checked(ARMOUR_COLUMNS) {
            text += line;
            text.push('\n');
            rest = more;
        }
        if !rest.is_empty() {
            text += rest;
            text.push('\n');
        }
        text += END;
        text.push('\n');
    }
    text
}

/// Returns the next word, or an error that says what is expected of the whole line.
fn word<'a>(
    words: &mut impl Iterator<Item = &'a str>,
    form: &str,
    missing: &str,
    advice: &str,
) -> Result<&'a str, LineFault> {
    words.next().ok_or_else(|| LineFault::new(form, format!("no {missing}"), advice))
}

fn key(text: &str, advice: &str) -> Result<PublicKey, LineFault> {
    text.parse().map_err(|why| LineFault::new("a public key", format!("{} ({why})", shown(text)), advice))
}

fn comment<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(" ")
}

impl FromStr for Authority {
    type Err = LineFault;

    fn from_str(line: &str) -> Result<Authority, LineFault> {
        const ADVICE: &str = "`farcall keys show` prints the public key of an authority's file";
        let mut words = line.split_whitespace();
        let key = key(word(&mut words, "KEY [COMMENT]", "key", ADVICE)?, ADVICE)?;
        Ok(Authority { key, comment: comment(words) })
    }
}

impl FromStr for AuthorizedKey {
    type Err = LineFault;

    fn from_str(line: &str) -> Result<AuthorizedKey, LineFault> {
        const FORM: &str = "KEY PRINCIPAL [type=TYPE] [instance=INSTANCE] [COMMENT]";
        const ADVICE: &str =
            "write a line as KEY alice type=Store her laptop; `farcall keys show` prints a client's key";
        let mut words = line.split_whitespace().peekable();
        let key = key(word(&mut words, FORM, "key", ADVICE)?, ADVICE)?;
        let principal = word(&mut words, FORM, "principal", ADVICE)?;
        let principal = principal.parse().map_err(|why| LineFault::name(why, ADVICE))?;
        let mut option =
            |name: &str| words.next_if(|word| word.starts_with(name)).and_then(|word| word.get(name.len()..));
        let (type_name, instance) = (option("type="), option("instance="));
        let scope = Scope::new(type_name.unwrap_or("*"), instance.unwrap_or("*"));
        let scope = scope.map_err(|why| LineFault::name(why, ADVICE))?;
        if let Some(late) =
            words.clone().find(|word| word.starts_with("type=") || word.starts_with("instance="))
        {
            let found = format!("{} after other words", shown(late));
            return Err(LineFault::new(
                FORM,
                found,
                "write type= and then instance= right behind the principal",
            ));
        }
        Ok(AuthorizedKey { key, principal, scope, comment: comment(words) })
    }
}

impl FromStr for KnownServer {
    type Err = LineFault;

    fn from_str(line: &str) -> Result<KnownServer, LineFault> {
        const FORM: &str = "NAME KEY [or-granted] [COMMENT]";
        const ADVICE: &str = "write a line as Store/main KEY, or * KEY; `farcall keys show` prints a key";
        let mut words = line.split_whitespace().peekable();
        let scope = word(&mut words, FORM, "name", ADVICE)?;
        let scope = scope.parse().map_err(|why| LineFault::name(why, ADVICE))?;
        let key = key(word(&mut words, FORM, "key", ADVICE)?, ADVICE)?;
        let or_granted = words.next_if_eq(&"or-granted").is_some();
        Ok(KnownServer { scope, key, or_granted, comment: comment(words) })
    }
}

impl FromStr for GrantLine {
    type Err = LineFault;

    fn from_str(line: &str) -> Result<GrantLine, LineFault> {
        const ADVICE: &str = "copy the whole line that `farcall keys grant` printed";
        let text = word(&mut line.split_whitespace(), "GRANT [COMMENT]", "grant", ADVICE)?;
        Grant::from_text(text)
            .map(GrantLine)
            .map_err(|why| LineFault::new("a grant in base64", why.to_string(), ADVICE))
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.key, spaced(&self.comment))
    }
}

impl fmt::Display for AuthorizedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.principal)?;
        if !self.scope.type_name().is_any() {
            write!(f, " type={}", self.scope.type_name())?;
        }
        if !self.scope.instance().is_any() {
            write!(f, " instance={}", self.scope.instance())?;
        }
        f.write_str(&spaced(&self.comment))
    }
}

impl fmt::Display for KnownServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_granted = if self.or_granted { " or-granted" } else { "" };
        write!(f, "{} {}{or_granted}{}", self.scope, self.key, spaced(&self.comment))
    }
}

fn spaced(comment: &str) -> String {
    if comment.is_empty() { String::new() } else { format!(" {comment}") }
}
