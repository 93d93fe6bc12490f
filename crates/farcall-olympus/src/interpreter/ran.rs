//! Writes whether a procedure ran as a word, in journals and for users.

use farcall::Ran;
use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};

/// Returns the word: `no`, `maybe` or `yes`.
pub(crate) fn word(ran: Ran) -> &'static str {
    match ran {
        Ran::No => "no",
        Ran::Maybe => "maybe",
        Ran::Yes => "yes",
    }
}

pub(super) fn serialize<S: Serializer>(ran: &Ran, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(word(*ran))
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Ran, D::Error> {
    let read = String::deserialize(from)?;
    let known = [Ran::No, Ran::Maybe, Ran::Yes].into_iter().find(|ran| word(*ran) == read);
    known.ok_or_else(|| D::Error::unknown_variant(&read, &["no", "maybe", "yes"]))
}
