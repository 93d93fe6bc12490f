//! Reads whole files and streams that a user names, however long they are: `/dev/zero` has no end.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The most bytes of a file that describes interfaces, or has keys of recorded conversations.
pub const MAX_FILE_BYTES: u64 = 256 << 20;

/// The most bytes of arguments: no server takes longer ones.
pub const MAX_ARGUMENT_BYTES: u64 = 1 << 30;

/// Reads a file of at most `most` bytes. It may be a pipe.
pub fn read(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    read_from(File::open(path)?, most)
}

/// Reads to the end, at most `most` bytes.
pub fn read_from(reader: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Where there is no memory, this fails, and does not end the process.
    reader.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::new(ErrorKind::FileTooLarge, format!("it has more than {most} bytes"))),
        false => Ok(bytes),
    }
}

/// Reads to the end as text, at most `most` bytes.
pub fn text_from(reader: impl Read, most: u64) -> io::Result<String> {
    String::from_utf8(read_from(reader, most)?)
        .map_err(|why| io::Error::new(ErrorKind::InvalidData, why.utf8_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_an_error_and_what_is_as_long_as_it_may_be_is_read() {
        let endless = read_from(io::repeat(b'a'), 1000).unwrap_err();
        assert_eq!(
            (endless.kind(), endless.to_string()),
            (ErrorKind::FileTooLarge, "it has more than 1000 bytes".into())
        );
        assert_eq!(text_from(io::repeat(b'a').take(1000), 1000).unwrap(), "a".repeat(1000));
        assert_eq!(text_from(&[0xff][..], 1000).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
