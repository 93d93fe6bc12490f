//! The Diffie-Hellman function of the handshake (X25519) by several libraries, with a key that stays.
use anyhow::{Context, Result};
use aws_lc_rs::agreement::{self, UnparsedPublicKey};
use curve25519_dalek::MontgomeryPoint;
use farcall_bench_method::{Options, Row};
use graviola::key_agreement::x25519;

use crate::callgrind::Count;
use crate::interleaved::{self, Part};

const EXCHANGE: &str = "X25519";
const PUBLIC: &str = "X25519, public key";

/// Measures all libraries.
pub fn rows(options: &Options) -> Result<Vec<Row>> {
    interleaved::rows("exchanges", parts()?, options)
}

/// Executes what is counted. Graviola does not run under valgrind.
pub fn count(count: &Count) -> Result<()> {
    interleaved::count(parts()?, count)
}

fn parts() -> Result<Vec<Part>> {
    let private: [u8; 32] = std::array::from_fn(|at| at as u8 * 7 + 1);
    let public = farcall_crypto::public_key(&[9; 32]);
    let expected = MontgomeryPoint(public).mul_clamped(private).to_bytes();
    let own = farcall_crypto::public_key(&private);

    let key = agreement::PrivateKey::from_private_key(&agreement::X25519, &private);
    let key = key.ok().context("the key is refused")?;
    let mut parts = vec![
        part("curve25519-dalek", EXCHANGE, move || {
            MontgomeryPoint(public).mul_clamped(private).0 == expected
        }),
        part("aws-lc-rs", EXCHANGE, move || {
            let public = UnparsedPublicKey::new(&agreement::X25519, public);
            agreement::agree(&key, public, (), |shared| Ok(shared == expected)) == Ok(true)
        }),
        part("curve25519-dalek", PUBLIC, move || farcall_crypto::public_key(&private) == own),
    ];
    if graviola_runs() {
        let key = x25519::StaticPrivateKey::from_array(&private);
        let theirs = x25519::PublicKey::from_array(&public);
        parts.push(part("graviola", EXCHANGE, move || {
            key.diffie_hellman(&theirs).is_ok_and(|shared| shared.0 == expected)
        }));
        parts.push(part("graviola", PUBLIC, move || {
            x25519::StaticPrivateKey::from_array(&private).public_key().as_bytes() == own
        }));
    }
    Ok(parts)
}

fn part(name: &'static str, operation: &'static str, run: impl FnMut() -> bool + 'static) -> Part {
    Part { name, operation, bytes: None, run: Box::new(run) }
}

/// Returns whether the processor has the instructions without which graviola panics.
fn graviola_runs() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("adx") && std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    return cfg!(target_arch = "aarch64");
}
