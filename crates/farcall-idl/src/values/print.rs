//! Writes values as JSON text, part by part as they are decoded.

use std::io::{self, Write};

use farcall_xdr::Decoder;
use farcall_xdr::schema::{Type, Types};

use super::decode::Reader;
use super::error::{Error, Path};

/// The settings of the text.
#[derive(Clone, Copy)]
pub struct Layout {
    /// Whether each part has a line of its own. Otherwise the text is one line.
    pub pretty: bool,
    /// Escapes a piece of text that has characters other than printable ASCII. The result must be equivalent
    /// JSON.
    pub text: fn(String) -> String,
}

/// Decodes a value of the type `ty`, which takes all of `bytes`, and writes it as JSON part by part. Needs
/// memory only for the longest text in the value, however many parts there are. Writes nothing if the bytes
/// are not such a value.
///
/// # Errors
/// When the bytes are not a value of the type. The error says at which byte. The inner result is that of
/// writing.
pub fn write(
    types: &Types,
    ty: &Type,
    bytes: &[u8],
    layout: Layout,
    out: &mut dyn Write,
) -> Result<io::Result<()>, Error> {
    types.check(std::slice::from_ref(ty))?;
    let reader = Reader::new(types, false, None);
    let mut decoder = Decoder::new(bytes);
    reader.walk(ty, &mut decoder)?;
    decoder.finish().map_err(|why| Path::ROOT.error(why.to_string()))?;
    let (mut decoder, out) = (Decoder::new(bytes), Changed { out, text: layout.text });
    let written = match layout.pretty {
        true => reader.value(ty, &mut decoder, &Path::ROOT, &mut serde_json::Serializer::pretty(out)),
        false => reader.value(ty, &mut decoder, &Path::ROOT, &mut serde_json::Serializer::new(out)),
    };
    // The bytes have been decoded once already, so they are a value.
    Ok(written.map_err(io::Error::from))
}

/// Changes text before it is written.
struct Changed<'w> {
    out: &'w mut dyn Write,
    text: fn(String) -> String,
}

impl Write for Changed<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        match piece.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) {
            true => self.out.write_all(piece)?,
            // Serde_json writes whole characters.
            false => {
                self.out.write_all((self.text)(String::from_utf8_lossy(piece).into_owned()).as_bytes())?
            }
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
