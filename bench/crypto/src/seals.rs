//! Authenticated encryption: sealing and opening a datagram, by several libraries, and what comes with it.
use aes_gcm::aead::{AeadInPlace, KeyInit};
use anyhow::{Context, Result};
use farcall_bench_method::{Options, Row};
use farcall_crypto::{End, Level, Secrets, Suite, Suites, TicketKeys, Window};

use crate::callgrind::Count;
use crate::interleaved::{self, Part};

/// Bytes of the header, which is the associated data, and of the tag.
const HEADER: usize = 20;
const TAG: usize = 16;

const BYTES: [usize; 4] = [32, 400, 1200, 8192];

const BOTH: &str = "seal + open";

/// What the conditions say.
pub const METHOD: &str = "bytes are those between a header of 20 bytes and a tag of 16; at the level \
     authenticated nothing is encrypted; ratio: to the first row of the same length";

/// Measures all lengths, and then what is done once for a conversation or for a datagram of any length.
pub fn rows(options: &Options) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for bytes in BYTES {
        rows.extend(interleaved::rows("seals", sealing(bytes)?, options)?);
    }
    rows.extend(interleaved::rows("seals", others()?, options)?);
    Ok(rows)
}

/// Executes what is counted.
pub fn count(count: &Count) -> Result<()> {
    let parts = match count.what.parse()? {
        0 => others()?,
        bytes => sealing(bytes)?,
    };
    interleaved::count(parts, count)
}

/// Returns the parts that seal and open a datagram with `bytes` bytes between header and tag.
fn sealing(bytes: usize) -> Result<Vec<Part>> {
    // The level authenticated has everything before the tag in the clear.
    let all = HEADER + bytes;
    let (aes, chacha) = (Suite::Aes128Gcm, Suite::ChaCha20Poly1305);
    Ok(vec![
        part("farcall, AES-128-GCM, secure", bytes, ours(Level::Secure, aes)?),
        part("farcall, AES-128-GCM, authenticated", bytes, ours(Level::Authenticated, aes)?),
        part("farcall, ChaCha20-Poly1305, secure", bytes, ours(Level::Secure, chacha)?),
        part("farcall, ChaCha20-Poly1305, authenticated", bytes, ours(Level::Authenticated, chacha)?),
        part("ring, AES-128-GCM, secure", bytes, by_ring(&ring::aead::AES_128_GCM, HEADER)?),
        part("ring, AES-128-GCM, authenticated", bytes, by_ring(&ring::aead::AES_128_GCM, all)?),
        part("ring, ChaCha20-Poly1305, secure", bytes, by_ring(&ring::aead::CHACHA20_POLY1305, HEADER)?),
        part("ring, ChaCha20-Poly1305, authenticated", bytes, by_ring(&ring::aead::CHACHA20_POLY1305, all)?),
        part("aws-lc-rs, AES-128-GCM, secure", bytes, by_aws(&aws_lc_rs::aead::AES_128_GCM, HEADER)?),
        part("aws-lc-rs, AES-128-GCM, authenticated", bytes, by_aws(&aws_lc_rs::aead::AES_128_GCM, all)?),
        part(
            "aws-lc-rs, ChaCha20-Poly1305, secure",
            bytes,
            by_aws(&aws_lc_rs::aead::CHACHA20_POLY1305, HEADER)?,
        ),
        part(
            "aws-lc-rs, ChaCha20-Poly1305, authenticated",
            bytes,
            by_aws(&aws_lc_rs::aead::CHACHA20_POLY1305, all)?,
        ),
        part("aes-gcm, AES-128-GCM, secure", bytes, by_rustcrypto(HEADER)?),
        part("aes-gcm, AES-128-GCM, authenticated", bytes, by_rustcrypto(all)?),
    ])
}

fn part(name: &'static str, bytes: usize, mut pass: impl FnMut(u64, &mut [u8]) -> bool + 'static) -> Part {
    let (mut number, mut datagram) = (0, vec![7; HEADER + bytes + TAG]);
    let run = move || {
        number += 1;
        pass(number, &mut datagram)
    };
    Part { name, operation: BOTH, bytes: Some(bytes), run: Box::new(run) }
}

fn secrets(level: Level, suite: Suite) -> Result<Secrets> {
    let mut bytes = [5; Secrets::BYTES];
    (bytes[0], bytes[1]) = (level as u8, suite as u8);
    Secrets::from_bytes(&bytes).context("no secrets")
}

fn ours(level: Level, suite: Suite) -> Result<impl FnMut(u64, &mut [u8]) -> bool> {
    let secrets = secrets(level, suite)?;
    let (client, server) = (secrets.cipher(End::Client, None), secrets.cipher(End::Server, None));
    Ok(move |number, datagram: &mut [u8]| {
        client.seal(number, datagram, HEADER);
        server.open(0, number, datagram, HEADER).is_some()
    })
}

fn nonce(number: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

fn by_ring(
    algorithm: &'static ring::aead::Algorithm,
    clear: usize,
) -> Result<impl FnMut(u64, &mut [u8]) -> bool> {
    use ring::aead::{Aad, LessSafeKey, Nonce, UnboundKey};
    let key = UnboundKey::new(algorithm, &[5; 32][..algorithm.key_len()]).ok().context("no key")?;
    let key = LessSafeKey::new(key);
    Ok(move |number, datagram: &mut [u8]| {
        let nonce = || Nonce::assume_unique_for_key(nonce(number));
        let (header, rest) = datagram.split_at_mut(clear);
        let Some((body, tag)) = rest.split_last_chunk_mut::<TAG>() else { return false };
        match key.seal_in_place_separate_tag(nonce(), Aad::from(&*header), body) {
            Ok(sealed) => tag.copy_from_slice(sealed.as_ref()),
            Err(_) => return false,
        }
        key.open_in_place(nonce(), Aad::from(&*header), rest).is_ok()
    })
}

fn by_aws(
    algorithm: &'static aws_lc_rs::aead::Algorithm,
    clear: usize,
) -> Result<impl FnMut(u64, &mut [u8]) -> bool> {
    use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce, UnboundKey};
    let key = UnboundKey::new(algorithm, &[5; 32][..algorithm.key_len()]).ok().context("no key")?;
    let key = LessSafeKey::new(key);
    Ok(move |number, datagram: &mut [u8]| {
        let nonce = || Nonce::assume_unique_for_key(nonce(number));
        let (header, rest) = datagram.split_at_mut(clear);
        let Some((body, tag)) = rest.split_last_chunk_mut::<TAG>() else { return false };
        match key.seal_in_place_separate_tag(nonce(), Aad::from(&*header), body) {
            Ok(sealed) => tag.copy_from_slice(sealed.as_ref()),
            Err(_) => return false,
        }
        key.open_in_place(nonce(), Aad::from(&*header), rest).is_ok()
    })
}

fn by_rustcrypto(clear: usize) -> Result<impl FnMut(u64, &mut [u8]) -> bool> {
    let key = aes_gcm::Aes128Gcm::new_from_slice(&[5; 16]).ok().context("no key")?;
    Ok(move |number, datagram: &mut [u8]| {
        let nonce = nonce(number);
        let (header, rest) = datagram.split_at_mut(clear);
        let Some((body, tag)) = rest.split_last_chunk_mut::<TAG>() else { return false };
        match key.encrypt_in_place_detached(&nonce.into(), header, body) {
            Ok(sealed) => tag.copy_from_slice(&sealed),
            Err(_) => return false,
        }
        key.decrypt_in_place_detached(&nonce.into(), header, body, (&*tag).into()).is_ok()
    })
}

/// Returns the parts that do not depend on a datagram's length.
fn others() -> Result<Vec<Part>> {
    let part = |name, operation, run| Part { name, operation, bytes: None, run };
    let (mut window, mut number) = (Window::default(), 0);
    let cipher = |suite| -> Result<Box<dyn FnMut() -> bool>> {
        let secrets = secrets(Level::Secure, suite)?;
        Ok(Box::new(move || secrets.cipher(End::Server, None).phase() == 0))
    };
    let tickets = || TicketKeys::new(Suites::of_this_machine(), &[5; 44].into());
    let (mut sealing, mut opening) = (tickets(), tickets());
    let secret = secrets(Level::Secure, Suite::Aes128Gcm)?.to_bytes();
    let ticket = opening.seal(&[1; 32], &secret);
    Ok(vec![
        part(
            "farcall",
            "Window::take",
            Box::new(move || {
                number += 1;
                window.take(number)
            }),
        ),
        part("farcall, AES-128-GCM", "Secrets::cipher", cipher(Suite::Aes128Gcm)?),
        part("farcall, ChaCha20-Poly1305", "Secrets::cipher", cipher(Suite::ChaCha20Poly1305)?),
        part("farcall", "TicketKeys::seal", Box::new(move || !sealing.seal(&[1; 32], &secret).is_empty())),
        part("farcall", "TicketKeys::open", Box::new(move || opening.open(&[1; 32], &ticket).is_some())),
    ])
}
