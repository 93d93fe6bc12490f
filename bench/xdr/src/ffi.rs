//! Safe functions around the C side (`xdr.c`).
use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::ptr::NonNull;

use anyhow::{Context, Result, ensure};

unsafe extern "C" {
    fn bench_hold(kind: c_int, bytes: *const c_char, length: c_uint) -> *mut c_void;
    fn bench_encode(held: *const c_void, out: *mut c_char, room: c_uint, times: c_uint) -> c_long;
    fn bench_decode(held: *const c_void, bytes: *const c_char, length: c_uint, times: c_uint) -> c_long;
}

/// The type of a value, with the numbers of `kinds` in `xdr.c`.
#[derive(Clone, Copy)]
pub enum Kind {
    ReadDirPlus = 0,
    Points = 1,
    Accounts = 2,
}

/// A value in C's memory, which is kept until the process ends.
pub struct Held(NonNull<c_void>);

impl Held {
    pub fn new(kind: Kind, bytes: &[u8]) -> Result<Held> {
        // SAFETY: C only reads the bytes, and only during the call.
        let held = unsafe { bench_hold(kind as c_int, bytes.as_ptr().cast(), bytes.len().try_into()?) };
        Ok(Held(NonNull::new(held).context("C does not take the encoding")?))
    }

    pub fn encode(&self, out: &mut [u8], times: u32) -> Result<()> {
        let (room, whole) = (out.len().try_into()?, out.len());
        // SAFETY: the value is not changed, and C writes at most `room` bytes.
        let length = unsafe { bench_encode(self.0.as_ptr(), out.as_mut_ptr().cast(), room, times) };
        ensure!(usize::try_from(length) == Ok(whole), "C encodes {length} bytes where we do {whole}");
        Ok(())
    }

    pub fn decode(&self, bytes: &[u8], times: u32) -> Result<()> {
        // SAFETY: as above. C frees the decoded value again.
        let used =
            unsafe { bench_decode(self.0.as_ptr(), bytes.as_ptr().cast(), bytes.len().try_into()?, times) };
        ensure!(
            usize::try_from(used) == Ok(bytes.len()),
            "C decodes {used} bytes where we do {}",
            bytes.len()
        );
        Ok(())
    }
}
