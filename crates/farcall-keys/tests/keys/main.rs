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
#[cfg(unix)]
mod owners;
mod policies;
mod properties;
#[cfg(unix)]
mod reloads;
mod tokens;
