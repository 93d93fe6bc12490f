//! POST: bytes for an export, of no call.

use super::kinds::POST;
use super::{Malformed, Reader, Writer};

/// Reads the export's identifier and the bytes.
pub(super) fn read(mut r: Reader<'_>) -> Result<(u64, &[u8]), Malformed> {
    Ok((r.u64()?, r.rest()))
}

impl Writer<'_> {
    /// Writes a POST, and returns whether there was room.
    pub fn post(&mut self, export: u64, bytes: &[u8]) -> bool {
        let fits = self.fits(8 + bytes.len());
        if fits {
            self.frame(POST, 0, 8 + bytes.len()).u64(export).bytes(bytes);
        }
        fits
    }
}
