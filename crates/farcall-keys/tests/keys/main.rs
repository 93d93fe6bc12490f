//! Tests of identities, grants, revocation, key files and policies.
#![allow(missing_docs)]

#[cfg(feature = "x509")]
mod certificates;
mod common;
mod encodings;
mod enrolments;
mod entries;
#[cfg(unix)]
mod files;
mod judgement;
mod policies;
mod properties;
mod tokens;
