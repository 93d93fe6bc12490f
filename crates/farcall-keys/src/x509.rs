//! Enrolment by an X.509 certificate: a host that has a certificate gets grants for it, by the authority's
//! rules (docs/keys.md, "Certificates").
//!
//! The files below, in the order in which an enrolment needs them:
//!
//! - `chain` the host's certificates, `private_key` its private key, `scheme` how that key signs
//! - `challenge` what makes each request a new one, `request` both messages
//! - `subject` and `spiffe` whom a certificate names, `bundle` who may have said so
//! - `policy` which names get which grants
//! - `service` the authority's end
//! - `fuzzing` what the fuzz targets see of it

mod bundle;
mod chain;
mod challenge;
mod fuzzing;
mod policy;
mod private_key;
mod request;
mod scheme;
mod service;
mod spiffe;
mod subject;

pub use chain::{CertificateChain, MAX_CHAIN_BYTES, MAX_CHAIN_CERTIFICATES};
pub use challenge::{CHALLENGE_BYTES, CHALLENGE_SECONDS, MAX_ENROLMENTS_A_MINUTE};
pub use fuzzing::{fuzz_certificate_request, fuzz_certificates};
pub use policy::{CertificatePolicy, MAX_GRANTS_OF_RULE};
pub use private_key::CertificateKey;
pub use request::{CertificateRequest, MAX_CERTIFICATE_REQUEST_BYTES};
pub use service::{CertificateEnrolment, Enrolled};
