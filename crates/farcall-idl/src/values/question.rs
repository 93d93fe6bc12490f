//! Checks whether a part of a value equals a text that a user expects, as in `status=NFS3ERR_STALE`.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use farcall_xdr::Decoder;
use farcall_xdr::schema::{Body, Type, Types};
use serde_json::Value;

use super::decode::{Reader, Watch};
use super::error::{Error, Path, WantedStep};

/// A path into a value, and the expected text. Paths have the form of those in errors, `$.entries[3].name`,
/// with or without `$.`. A union's discriminant has its name from the `.x` file. The part is compared as
/// text: a number's digits, `true`, `null`, or an enumerator's name or integer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    steps: Vec<WantedStep>,
    wanted: String,
    text: String,
}

/// The description of the value that is examined.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The types of the value.
    pub types: &'a Types,
    /// A description of the same types with other names, which paths may use too.
    pub also: Option<&'a Types>,
    /// The names of discriminants, by the index of their union.
    pub switches: Option<&'a BTreeMap<u32, String>>,
}

impl Question {
    /// Returns whether a value of the type `ty`, which takes all of `bytes`, has the expected text at the
    /// path. Returns `None` if the value has no such part.
    ///
    /// # Errors
    /// When the bytes are not a value of the type. The error says at which byte.
    pub fn is_so(&self, subject: Subject<'_>, ty: &Type, bytes: &[u8]) -> Result<Option<bool>, Error> {
        subject.types.check(std::slice::from_ref(ty))?;
        let finder = Finder { question: self, subject, found: Cell::new(None) };
        Reader::new(subject.types, false, Some(&finder)).walk(ty, &mut Decoder::new(bytes))?;
        Ok(finder.found.get())
    }
}

impl FromStr for Question {
    type Err = String;

    fn from_str(text: &str) -> Result<Question, String> {
        let (path, wanted) =
            text.split_once('=').ok_or("expected PATH=VALUE, as in `status=NFS3ERR_STALE`")?;
        let path = path.strip_prefix('$').unwrap_or(path);
        let mut steps = Vec::new();
        for part in path.split('.').filter(|part| !part.is_empty()) {
            let (name, indices) = part.split_at(part.find('[').unwrap_or(part.len()));
            steps.extend((!name.is_empty()).then(|| WantedStep::Name(name.to_owned())));
            for index in indices.split('[').skip(1) {
                let index = index.strip_suffix(']').and_then(|index| index.parse().ok());
                steps.push(WantedStep::Index(
                    index.ok_or_else(|| format!("`{part}` is not a part of a path"))?,
                ));
            }
        }
        Ok(Question { steps, wanted: wanted.to_owned(), text: text.to_owned() })
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

struct Finder<'a> {
    question: &'a Question,
    subject: Subject<'a>,
    found: Cell<Option<bool>>,
}

impl Finder<'_> {
    fn arm_names(types: Option<&Types>, place: u32, arm: usize, tag: i32) -> impl Iterator<Item = &str> {
        let own = types.and_then(|types| types.get(place)).and_then(|found| match &found.body {
            Body::Union { arms } => arms.get(arm).map(|arm| arm.name.as_str()),
            Body::Struct { .. } => None,
        });
        own.into_iter().chain(types.and_then(|types| types.other_name(place, tag)))
    }
}

impl Watch for Finder<'_> {
    fn leaf(&self, value: &Value, at: &Path<'_>) {
        if self.found.get().is_some()
            || !at.rest_of(&self.question.steps).is_some_and(<[WantedStep]>::is_empty)
        {
            return;
        }
        let text = match value {
            Value::String(text) => Cow::Borrowed(text.as_str()),
            other => Cow::Owned(other.to_string()),
        };
        self.found.set(Some(text == self.question.wanted));
    }

    fn variant(&self, place: u32, arm: usize, tag: i32, at: &Path<'_>) {
        let Subject { types, also, switches } = self.subject;
        let is_meant = match at.rest_of(&self.question.steps) {
            Some([]) => true,
            Some([WantedStep::Name(name)]) => {
                switches.and_then(|switches| switches.get(&place)) == Some(name)
            }
            _ => false,
        };
        if self.found.get().is_none() && is_meant {
            let also = Finder::arm_names(also, place, arm, tag);
            let mut names = Finder::arm_names(Some(types), place, arm, tag).chain(also);
            let wanted = self.question.wanted.as_str();
            self.found.set(Some(names.any(|name| name == wanted) || wanted.parse() == Ok(tag)));
        }
    }
}
