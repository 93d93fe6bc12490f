//! How the lengths of sealed datagrams hide those of what they hold (docs/protocol.md, section 11.1).

use std::str::FromStr;

/// What every path carries ([`BASE_DATAGRAM`](crate::BASE_DATAGRAM), in bytes).
const BASE: usize = 1_200;

/// How long an end makes the datagrams that only the two ends can read. Each end decides for what it sends.
/// Datagrams at the level *authenticated* are never padded, because everybody can read where their padding
/// begins.
///
/// ```
/// use farcall_proto::secure::Padding;
///
/// assert_eq!("datagram".parse(), Ok(Padding::Datagram));
/// assert_eq!((Padding::Block.of(100), Padding::Datagram.of(100)), (128, 1_200));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Padding {
    /// As long as what they hold.
    #[default]
    None,
    /// To the next multiple of 64 bytes.
    Block,
    /// To 1,200 bytes, which every path carries, or to the longest that this path carries. So all short calls
    /// and their results look the same.
    Datagram,
}

impl Padding {
    /// Returns how long a datagram of `len` bytes is made if the path carries it.
    #[inline]
    pub fn of(self, len: usize) -> usize {
        match self {
            Padding::None => len,
            Padding::Block => len.next_multiple_of(64),
            Padding::Datagram if len <= BASE => BASE,
            Padding::Datagram => usize::MAX,
        }
    }
}

/// Text that names no way to pad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPadding;

impl std::fmt::Display for UnknownPadding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("padding is one of: none, 64, datagram")
    }
}

impl std::error::Error for UnknownPadding {}

impl FromStr for Padding {
    type Err = UnknownPadding;

    fn from_str(text: &str) -> Result<Padding, UnknownPadding> {
        match text {
            "none" => Ok(Padding::None),
            "64" => Ok(Padding::Block),
            "datagram" => Ok(Padding::Datagram),
            _ => Err(UnknownPadding),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn short_datagrams_are_padded_to_what_every_path_carries() {
        assert_eq!(super::BASE, crate::BASE_DATAGRAM);
    }
}
