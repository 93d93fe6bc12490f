//! Values on paper, part by part as they are decoded.

use std::io::{self, Write};

use farcall_xdr::Decoder;
use farcall_xdr::schema::{Type, Types};

use super::decode::Reader;
use super::error::{Error, Path};

/// How JSON is written.
#[derive(Clone, Copy)]
pub struct Layout {
    /// A line for each part, instead of one for all.
    pub pretty: bool,
    /// What becomes of each piece that holds more than printable ASCII, before it is written: it must mean the
    /// same.
    pub text: fn(String) -> String,
}

/// Decodes a value of the type `ty`, of which `bytes` are all, and writes it as JSON part by part: however
/// many parts it has, it takes no memory but that of its longest text. Nothing is written of what is no such
/// value.
///
/// # Errors
/// At which byte it is not such a value; inside, what became of writing.
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
    // It was a value a moment ago.
    Ok(written.map_err(io::Error::from))
}

/// Changes text on its way.
struct Changed<'w> {
    out: &'w mut dyn Write,
    text: fn(String) -> String,
}

impl Write for Changed<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        match piece.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n')) {
            true => self.out.write_all(piece)?,
            // serde_json writes whole characters.
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
