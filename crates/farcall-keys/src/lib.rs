//! Who a key is: identities, grants, revocation, key files, and the policy of who may call what.
//!
//! A handshake (in `farcall-proto`) proves that the other end has the private key of a public key. This crate
//! says *who* that key is, and what it may do. It has no sockets, no threads, no clock and no randomness:
//! times are Unix seconds and, like entropy, arguments. Only [`KeyFiles`] and `CertificateFiles` read files.
//!
//! - [`Identity`] is a private key, [`PublicKey`] its public half. Both have an Ed25519 form, which signs,
//!   and an X25519 form, which takes part in handshakes.
//! - A [`Grant`] is an authority's signed word that a key belongs to a principal, who may export or import
//!   certain names until a certain time. A [`RevocationList`] takes keys and grants back.
//! - A [`Presentation`] is what an end shows in a handshake: its key and the grants that fit.
//! - A [`Keyring`] is a snapshot of all that an end knows. It makes presentations, judges those of others
//!   ([`Keyring::check_server`], [`Keyring::check_client`]), and says whether a [`Principal`] still stands.
//! - A [`Policy`] says which principal may call what.
//! - [`KeyFiles`] reads a keyring from a directory, and reads it again when a file changes.
//! - An [`EntryProof`] shows that an exporter has signed its entry in a registry.
//! - An [`EnrolmentToken`] lets a new machine ask an authority for its first grant, by an
//!   [`EnrolmentRequest`], which an [`OpenEnrolment`] answers.
//! - With the feature `x509`, a host with a certificate gets grants by a `CertificateRequest`, which a
//!   `CertificateEnrolment` answers as a `CertificatePolicy` says.
//!
//! ```
//! use farcall_keys::{Identity, Keyring, Right, Rights, Terms};
//!
//! // In a program, 32 bytes from the operating system are the entropy of each identity.
//! let [authority, server, client] = [1, 2, 3].map(|byte| Identity::from_entropy([byte; 32]));
//! let now = 1_800_000_000;
//! let grant = authority.grant(Terms {
//!     key: client.public(),
//!     principal: "alice".parse()?,
//!     rights: Rights::IMPORT,
//!     scope: "Store/main".parse()?,
//!     serial: 1,
//!     expires: now + 90 * 86_400,
//! })?;
//!
//! let authority = authority.public();
//! let server = Keyring::new(server).with_authority(authority);
//! let client = Keyring::new(client).with_grant(grant)?;
//!
//! let shown = client.presentation("Store", "main", Right::Import);
//! let exchange_key = client.identity().public().exchange_key(); // what the handshake has proved
//! let alice = server.check_client(&exchange_key, &shown, now)?;
//! assert_eq!(&*alice.name, "alice");
//! assert!(server.admit(&alice, "Store", "main", now)?.allows_procedure("get"));
//! assert!(server.admit(&alice, "Store", "other", now).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod codec;
mod enrolment;
mod entry;
mod fault;
mod files;
mod grant;
mod identity;
mod key;
mod keyring;
mod lines;
mod name;
mod policy;
mod presentation;
mod principal;
mod refusal;
mod revocation;
mod segment;
mod text;
mod token;
#[cfg(feature = "x509")]
mod x509;

pub use codec::Malformed;
pub use enrolment::{
    EnrolmentError, EnrolmentRequest, MAX_ENROLMENT_BYTES, MAX_WRONG_ATTEMPTS, OpenEnrolment,
};
pub use entry::{ENTRY_SECONDS, EntryProof, MAX_CLOCK_DIFFERENCE_SECONDS, MAX_ENTRY_PROOF_BYTES};
pub use fault::{Fault, LineFault};
#[cfg(feature = "x509")]
pub use files::CertificateFiles;
pub use files::{KeyFiles, KeyLine};
pub use grant::{Grant, MAX_GRANT_BYTES, Right, Rights, Terms, TooLarge};
pub use identity::Identity;
pub use key::{Context, Fingerprint, KeyError, PublicKey, SIGNATURE_BYTES};
pub use keyring::Keyring;
pub use lines::{Authority, AuthorizedKey, KnownServer};
pub use name::{MAX_PRINCIPAL_BYTES, NameFault, Pattern, PrincipalName, Scope};
pub use policy::{Action, Decision, MAX_RULES, Policy, Rule};
pub use presentation::{MAX_GRANTS_SHOWN, MAX_PRESENTATION_BYTES, Presentation};
pub use principal::Principal;
pub use refusal::{Refusal, RefusalKind};
pub use revocation::{MAX_REVOCATIONS, RevocationList, Revoked};
pub use token::{EnrolmentToken, MAC_BYTES, Template, TokenError};
#[cfg(feature = "x509")]
pub use x509::{
    CHALLENGE_BYTES, CHALLENGE_SECONDS, CertificateChain, CertificateEnrolment, CertificateKey,
    CertificatePolicy, CertificateRequest, Enrolled, MAX_CERTIFICATE_REQUEST_BYTES, MAX_CHAIN_BYTES,
    MAX_CHAIN_CERTIFICATES, MAX_ENROLMENTS_A_MINUTE, MAX_GRANTS_OF_RULE,
};

#[cfg(feature = "x509")]
#[doc(hidden)]
pub use x509::{fuzz_certificate_request, fuzz_certificates};

/// Reads the bytes after the first as the key file that the first byte names. For the fuzz target.
#[doc(hidden)]
pub fn fuzz_key_file(bytes: &[u8]) {
    files::fuzz(bytes);
}
