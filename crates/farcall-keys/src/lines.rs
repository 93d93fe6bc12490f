//! The lines of key files. In each file `#` begins a comment, and blank lines count for nothing.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use farcall_base::work;

use crate::fault::LineFault;
use crate::grant::Grant;
use crate::identity::Identity;
use crate::key::{KeyError, PublicKey};
use crate::name::{NameFault, Pattern, PrincipalName, Scope};
use crate::revocation::RevocationList;
use crate::text::shown;

/// The maximum length of a line in bytes.
const MAX_LINE_BYTES: usize = 4 << 10;

const BEGIN: &str = "-----BEGIN FARCALL REVOCATION LIST-----";
const END: &str = "-----END FARCALL REVOCATION LIST-----";

/// The characters of base64 in a line of a revocation list.
const ARMOUR_COLUMNS: usize = 64;

/// A line of `authorities`: `KEY [principals=PRINCIPAL,...] [# COMMENT]`, a key whose grants are believed.
///
/// ```
/// use farcall_keys::Authority;
///
/// let line = "6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw= principals=team-*,alice # our own";
/// let authority: Authority = line.parse()?;
/// assert!(authority.may_name("team-7") && authority.may_name("alice") && !authority.may_name("ops"));
/// # Ok::<(), farcall_keys::LineFault>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// The authority's key.
    pub key: PublicKey,
    /// About which principals it is believed: those that fit one of these. If there are none, about all.
    pub principals: Vec<Pattern>,
    /// What people say about it.
    pub comment: String,
}

/// A line of `authorized_keys`: `KEY PRINCIPAL [type=TYPE] [instance=INSTANCE] [# COMMENT]`, a client that is
/// known without an authority.
///
/// ```
/// use farcall_keys::AuthorizedKey;
///
/// let line = "6kpsY+KcUgq+9VB7Ey7F+ZVHdq6+vnuSQh7qaRRG0iw= alice type=Store instance=main # her laptop";
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

/// A line of `known_servers`: `NAME KEY [or-granted] [# COMMENT]`, a key that may answer for a name: `TYPE`,
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

/// A line of a key file that is neither blank nor a comment.
pub(crate) struct Line<'a> {
    /// The line's number, from 1.
    pub(crate) number: usize,
    /// Everything before the comment.
    text: &'a str,
    /// What stands behind the first `#`.
    comment: Cow<'a, str>,
}

/// The words of a line, in their order.
#[derive(Clone)]
pub(crate) struct Words<'a> {
    text: &'a str,
    /// Where the next word may begin, in bytes.
    next: usize,
}

/// A word of a line, and the column where it begins, in characters from 1.
#[derive(Clone, Copy)]
pub(crate) struct Word<'a> {
    pub(crate) text: &'a str,
    pub(crate) column: usize,
}

/// What a line of a key file says.
pub(crate) trait ParseLine: Sized {
    /// Parses what stands before the comment.
    fn parse_line(words: Words<'_>, comment: &str) -> Result<Self, LineFault>;
}

impl<'a> Line<'a> {
    fn of(line: &'a [u8], number: usize) -> Result<Line<'a>, LineFault> {
        work::steps(1 + line.len() / 16);
        if line.len() > MAX_LINE_BYTES {
            let expected = format!("a line of at most {MAX_LINE_BYTES} bytes");
            let found = format!("{} bytes", line.len());
            return Err(LineFault::new(expected, found, "break the line, or remove it").at(number));
        }
        let start = line.iter().position(|byte| *byte == b'#').unwrap_or(line.len());
        let (text, comment) = line.split_at(start);
        let text = std::str::from_utf8(text).map_err(|_| {
            let advice = "write the file again, as text";
            LineFault::new("UTF-8", "bytes that are not UTF-8", advice).at(number)
        })?;
        Ok(Line { number, text, comment: String::from_utf8_lossy(comment.get(1..).unwrap_or_default()) })
    }

    /// Returns what the line says before its comment, without blanks around it.
    pub(crate) fn text(&self) -> &'a str {
        self.text.trim()
    }

    pub(crate) fn words(&self) -> Words<'a> {
        Words { text: self.text, next: 0 }
    }

    /// Parses the line. Faults have its number.
    pub(crate) fn parse<T: ParseLine>(&self) -> Result<T, LineFault> {
        T::parse_line(self.words(), self.comment.trim()).map_err(|why| why.at(self.number))
    }
}

impl<'a> Words<'a> {
    /// Returns the next word, or an error that says what is expected of the whole line.
    pub(crate) fn expect(&mut self, form: &str, missing: &str, advice: &str) -> Result<Word<'a>, LineFault> {
        let column = self.column(self.text.trim_end().len());
        self.next().ok_or_else(|| LineFault::new(form, format!("no {missing}"), advice).at_column(column))
    }

    /// Returns the value of the next word if it begins with this name, and passes over the word.
    fn option(&mut self, name: &str) -> Option<Word<'a>> {
        let before = self.next;
        let value = self.next().and_then(|word| {
            let column = word.column + name.chars().count();
            word.text.strip_prefix(name).map(|text| Word { text, column })
        });
        if value.is_none() {
            self.next = before;
        }
        value
    }

    /// Returns whether the next word is this one, and passes over it if so.
    fn flag(&mut self, name: &str) -> bool {
        let before = self.next;
        let is_next = self.next().is_some_and(|word| word.text == name);
        if !is_next {
            self.next = before;
        }
        is_next
    }

    /// Refuses a further word. A word that nobody understands could have been meant to restrict what the line
    /// gives.
    fn end(mut self, form: &str) -> Result<(), LineFault> {
        const ADVICE: &str = "correct the word, or write # before it if it is a comment";
        let Some(word) = self.next() else { return Ok(()) };
        Err(word.fault(form, shown(word.text), ADVICE))
    }

    fn column(&self, at: usize) -> usize {
        self.text.get(..at).unwrap_or_default().chars().count() + 1
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        let rest = self.text.get(self.next..)?;
        let start = self.next + (rest.len() - rest.trim_start().len());
        let rest = self.text.get(start..).filter(|rest| !rest.is_empty())?;
        let text = rest.split(char::is_whitespace).next()?;
        self.next = start + text.len();
        Some(Word { text, column: self.column(start) })
    }
}

impl Word<'_> {
    /// Returns a fault at this word.
    pub(crate) fn fault(&self, expected: &str, found: impl Into<String>, advice: &str) -> LineFault {
        LineFault::new(expected, found, advice).at_column(self.column)
    }

    pub(crate) fn name_fault(&self, why: NameFault, advice: &str) -> LineFault {
        LineFault::name(why, advice).at_column(self.column)
    }

    fn key(&self, advice: &str) -> Result<PublicKey, LineFault> {
        let found = |why| format!("{} ({why})", shown(self.text));
        self.text.parse().map_err(|why: KeyError| self.fault("a public key", found(why), advice))
    }
}

/// Returns the lines that are neither blank nor comments, or what is wrong with them.
pub(crate) fn lines(content: &[u8]) -> impl Iterator<Item = Result<Line<'_>, LineFault>> {
    content
        .split(|byte| *byte == b'\n')
        .zip(1..)
        .map(|(line, number)| Line::of(line, number))
        .filter(|line| !matches!(line, Ok(line) if line.text().is_empty()))
}

/// Parses each line, and says which is wrong.
pub(crate) fn parse<T: ParseLine>(content: &[u8]) -> impl Iterator<Item = Result<(usize, T), LineFault>> {
    lines(content).map(|line| {
        let line = line?;
        Ok((line.number, line.parse()?))
    })
}

/// Parses a line that is not in a file.
pub(crate) fn parse_alone<T: ParseLine>(line: &str) -> Result<T, LineFault> {
    let (text, comment) = line.split_once('#').unwrap_or((line, ""));
    T::parse_line(Words { text, next: 0 }, comment.trim())
}

/// Reads an identity's file, which has one line. Errors do not show what the file has.
pub(crate) fn identity(content: &[u8]) -> Result<Identity, LineFault> {
    const EXPECTED: &str = "one line, \"private:\" and 44 characters of base64";
    const ADVICE: &str = "restore the file from a copy, or make a new identity: `farcall keys make`";
    let mut found = lines(content);
    let line = found.next().ok_or_else(|| LineFault::new(EXPECTED, "no line", ADVICE))??;
    if let Some(more) = found.next() {
        return Err(LineFault::new(EXPECTED, "another line", ADVICE).at(more?.number));
    }
    let (number, text) = (line.number, line.text());
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

/// Reads the lists of a file `revoked`, each with the line on which it begins, or says what is wrong with it. A
/// fault ends with the next line that begins a list.
pub(crate) fn revocation_lists(content: &[u8]) -> Vec<Result<(usize, RevocationList), LineFault>> {
    const ADVICE: &str = "ask the authority for its list again (`farcall keys revoke` writes it)";
    /// What the next line belongs to.
    enum Part {
        Between,
        List(usize, String),
        /// What was said to be wrong.
        Wrong,
    }
    let (mut lists, mut part) = (Vec::new(), Part::Between);
    for line in lines(content) {
        let line = match line {
            Ok(line) => line,
            Err(why) => {
                lists.push(Err(why));
                part = Part::Wrong;
                continue;
            }
        };
        let (number, text) = (line.number, line.text());
        part = match (part, text) {
            (Part::Between | Part::Wrong, BEGIN) => Part::List(number, String::new()),
            (Part::Wrong, _) => Part::Wrong,
            (Part::List(start, base64), END) => {
                let wrong = |found: String| LineFault::new("a revocation list", found, ADVICE).at(start);
                let list = STANDARD.decode(base64).map_err(|why| wrong(format!("no base64 ({why})")));
                let list = list
                    .and_then(|bytes| RevocationList::decode(&bytes).map_err(|why| wrong(why.to_string())));
                lists.push(list.map(|list| (start, list)));
                Part::Between
            }
            (Part::List(start, mut base64), text) if text != BEGIN => {
                base64.push_str(text);
                Part::List(start, base64)
            }
            (Part::List(..), text) => {
                lists.push(Err(LineFault::new(END, shown(text), ADVICE).at(number)));
                Part::List(number, String::new())
            }
            (Part::Between, text) => {
                lists.push(Err(LineFault::new(BEGIN, shown(text), ADVICE).at(number)));
                Part::Wrong
            }
        };
    }
    if let Part::List(start, _) = part {
        lists.push(Err(LineFault::new(END, "the end of the file", ADVICE).at(start)));
    }
    lists
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

impl ParseLine for Authority {
    fn parse_line(mut words: Words<'_>, comment: &str) -> Result<Authority, LineFault> {
        const FORM: &str = "KEY [principals=PRINCIPAL,...] [# COMMENT]";
        const ADVICE: &str = "`farcall keys show` prints the public key of an authority's file";
        const LIMIT: &str =
            "write a limit as principals=team-*,alice; without it every principal is believed";
        let key = words.expect(FORM, "key", ADVICE)?.key(ADVICE)?;
        let mut principals = Vec::new();
        if let Some(limit) = words.option("principals=") {
            for pattern in limit.text.split(',') {
                let pattern = Pattern::principal(pattern).map_err(|why| limit.name_fault(why, LIMIT))?;
                principals.push(pattern);
            }
        }
        words.end(FORM)?;
        Ok(Authority { key, principals, comment: comment.to_owned() })
    }
}

impl ParseLine for AuthorizedKey {
    fn parse_line(mut words: Words<'_>, comment: &str) -> Result<AuthorizedKey, LineFault> {
        const FORM: &str = "KEY PRINCIPAL [type=TYPE] [instance=INSTANCE] [# COMMENT]";
        const ADVICE: &str =
            "write a line as KEY alice type=Store # her laptop; `farcall keys show` prints a client's key";
        let key = words.expect(FORM, "key", ADVICE)?.key(ADVICE)?;
        let principal = words.expect(FORM, "principal", ADVICE)?;
        let principal = principal.text.parse().map_err(|why| principal.name_fault(why, ADVICE))?;
        let (mut type_name, mut instance) = (None, None);
        loop {
            let (place, value) = if let Some(value) = words.option("type=") {
                (&mut type_name, value)
            } else if let Some(value) = words.option("instance=") {
                (&mut instance, value)
            } else {
                break;
            };
            if place.replace(value).is_some() {
                return Err(value.fault(FORM, "the same word twice", "write one line for each scope"));
            }
        }
        words.end(FORM)?;
        let part = |value: Option<Word<'_>>, of: &dyn Fn(&str) -> Result<Scope, NameFault>| match value {
            Some(value) => of(value.text).map(drop).map_err(|why| value.name_fault(why, ADVICE)),
            None => Ok(()),
        };
        part(type_name, &|text| Scope::new(text, "*"))?;
        part(instance, &|text| Scope::new("*", text))?;
        let [type_name, instance] = [type_name, instance].map(|value| value.map_or("*", |value| value.text));
        let scope = Scope::new(type_name, instance).map_err(|why| LineFault::name(why, ADVICE))?;
        Ok(AuthorizedKey { key, principal, scope, comment: comment.to_owned() })
    }
}

impl ParseLine for KnownServer {
    fn parse_line(mut words: Words<'_>, comment: &str) -> Result<KnownServer, LineFault> {
        const FORM: &str = "NAME KEY [or-granted] [# COMMENT]";
        const ADVICE: &str = "write a line as Store/main KEY, or * KEY; `farcall keys show` prints a key";
        let scope = words.expect(FORM, "name", ADVICE)?;
        let scope = scope.text.parse().map_err(|why| scope.name_fault(why, ADVICE))?;
        let key = words.expect(FORM, "key", ADVICE)?.key(ADVICE)?;
        let or_granted = words.flag("or-granted");
        words.end(FORM)?;
        Ok(KnownServer { scope, key, or_granted, comment: comment.to_owned() })
    }
}

impl ParseLine for GrantLine {
    fn parse_line(mut words: Words<'_>, _: &str) -> Result<GrantLine, LineFault> {
        const FORM: &str = "GRANT [# COMMENT]";
        const ADVICE: &str = "copy the whole line that `farcall keys grant` printed";
        let word = words.expect(FORM, "grant", ADVICE)?;
        words.end(FORM)?;
        Grant::from_text(word.text)
            .map(GrantLine)
            .map_err(|why| word.fault("a grant in base64", why.to_string(), ADVICE))
    }
}

impl FromStr for Authority {
    type Err = LineFault;

    fn from_str(line: &str) -> Result<Authority, LineFault> {
        parse_alone(line)
    }
}

impl FromStr for AuthorizedKey {
    type Err = LineFault;

    fn from_str(line: &str) -> Result<AuthorizedKey, LineFault> {
        parse_alone(line)
    }
}

impl FromStr for KnownServer {
    type Err = LineFault;

    fn from_str(line: &str) -> Result<KnownServer, LineFault> {
        parse_alone(line)
    }
}

impl Authority {
    /// Returns the line of an authority that is believed about every principal.
    pub fn new(key: PublicKey) -> Authority {
        Authority { key, principals: Vec::new(), comment: String::new() }
    }

    /// Returns whether the authority may say who this principal is.
    pub fn may_name(&self, principal: &str) -> bool {
        self.principals.is_empty() || self.principals.iter().any(|pattern| pattern.fits(principal))
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.key)?;
        for (number, pattern) in self.principals.iter().enumerate() {
            write!(f, "{}{pattern}", if number == 0 { " principals=" } else { "," })?;
        }
        f.write_str(&spaced(&self.comment))
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
    if comment.is_empty() { String::new() } else { format!(" # {comment}") }
}
