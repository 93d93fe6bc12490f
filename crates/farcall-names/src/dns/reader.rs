//! Reads the parts of a DNS message (RFC 1035, section 4.1): names, questions and records.
//!
//! Takes time in proportion to the message: a name has at most 255 bytes and [`MAX_POINTERS`] pointers.

use farcall_base::work;

use super::domain::Domain;

/// The length of a message's header in bytes.
pub(super) const HEADER_BYTES: usize = 12;

/// The class of the records of the internet.
pub(super) const CLASS_IN: u16 = 1;

/// The longest name in bytes, with the length of each part and the zero at its end.
const MAX_NAME_BYTES: usize = 255;

/// The most pointers on the way to the end of a name. A server needs one for each name. Without this bound
/// each of thousands of records could have the same long chain.
const MAX_POINTERS: usize = 16;

/// The numbers of the types of records.
pub(super) mod kind {
    pub(in super::super) const IPV4: u16 = 1;
    pub(in super::super) const ALIAS: u16 = 5;
    pub(in super::super) const AUTHORITY: u16 = 6;
    pub(in super::super) const IPV6: u16 = 28;
    pub(in super::super) const SERVICE: u16 = 33;
    pub(in super::super) const OPTIONS: u16 = 41;
}

/// A position in a message. What it reads is `None` if the message is malformed.
#[derive(Clone)]
pub(super) struct Reader<'a> {
    message: &'a [u8],
    at: usize,
}

/// A record. Its data are not looked at.
pub(super) struct Record<'a> {
    /// `None` if it has letters other than those of hosts.
    pub(super) name: Option<Domain>,
    pub(super) kind: u16,
    pub(super) class: u16,
    /// How long the record may be kept, in seconds.
    pub(super) ttl: u32,
    data: Reader<'a>,
    /// Where the data end.
    end: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Reader<'a> {
        Reader { message, at: 0 }
    }

    /// Reads numbers of 16 bits.
    pub(super) fn words<const N: usize>(&mut self) -> Option<[u16; N]> {
        let bytes = self.take(2 * N)?.as_chunks::<2>().0;
        let mut words = [0; N];
        words.iter_mut().zip(bytes).for_each(|(word, bytes)| *word = u16::from_be_bytes(*bytes));
        Some(words)
    }

    /// Passes over a question.
    pub(super) fn question(&mut self) -> Option<()> {
        self.name()?;
        self.words::<2>().map(drop)
    }

    /// Reads a record.
    pub(super) fn record(&mut self) -> Option<Record<'a>> {
        let name = self.name()?;
        let [kind, class, high, low, length] = self.words()?;
        let data = self.clone();
        self.take(length.into())?;
        let ttl = u32::from(high) << 16 | u32::from(low);
        Some(Record { name, kind, class, ttl, data, end: self.at })
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.message.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).and_then(<[u8]>::first).copied()
    }

    /// Reads a name. Returns no name if it has letters other than those of hosts, or is that of the root.
    /// Each pointer leads to a place before it.
    fn name(&mut self) -> Option<Option<Domain>> {
        let (mut parts, mut bytes, mut pointers) = (Vec::new(), 1, 0);
        let mut follower = self.clone();
        // Where the name ends in its own place: behind the first pointer.
        let mut end = None;
        loop {
            work::step();
            let before = follower.at;
            match follower.byte()? {
                0 => break,
                length if length < 0x40 => {
                    bytes += 1 + usize::from(length);
                    if bytes > MAX_NAME_BYTES {
                        return None;
                    }
                    parts.push(follower.take(length.into())?);
                }
                high if high >= 0xc0 => {
                    let to = usize::from(high & 0x3f) << 8 | usize::from(follower.byte()?);
                    end.get_or_insert(follower.at);
                    pointers += 1;
                    if to >= before || pointers > MAX_POINTERS {
                        return None;
                    }
                    follower.at = to;
                }
                _ => return None,
            }
        }
        self.at = end.unwrap_or(follower.at);
        Some(Domain::of_parts(parts.into_iter()))
    }
}

impl<'a> Record<'a> {
    /// Returns the record's data.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.data.message.get(self.data.at..self.end).unwrap_or_default()
    }

    /// Reads data that begin with numbers of 16 bits and a name.
    pub(super) fn name_after<const N: usize>(&self) -> Option<([u16; N], Option<Domain>)> {
        let mut data = self.data.clone();
        let numbers = data.words()?;
        let name = data.name()?;
        (data.at <= self.end).then_some((numbers, name))
    }

    /// Returns how long it stays true that a name has no record, in seconds, as data of the type
    /// [`kind::AUTHORITY`] say (RFC 2308).
    pub(super) fn least_ttl(&self) -> Option<u32> {
        let mut data = self.data.clone();
        data.name()?;
        data.name()?;
        let [.., high, low] = data.words::<10>()?;
        (data.at <= self.end).then_some(u32::from(high) << 16 | u32::from(low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(message: &[u8], at: usize) -> Option<Option<String>> {
        let name = Reader { message, at }.name()?;
        Some(name.map(|name| name.as_str().to_owned()))
    }

    #[test]
    fn a_name_is_read_through_its_pointers() {
        let message = b"\x01a\x07Example\x00\x01b\xc0\x02\xc0\x0b";
        assert_eq!(name(message, 0), Some(Some("a.example".to_owned())));
        assert_eq!(name(message, 11), Some(Some("b.example".to_owned())));
        assert_eq!(name(message, 15), Some(Some("b.example".to_owned())));
        let mut reader = Reader { message, at: 11 };
        reader.name().unwrap();
        assert_eq!(reader.at, 15, "it ends behind the pointer");
    }

    #[test]
    fn names_without_an_end_are_refused() {
        assert_eq!(name(b"\xc0\x00", 0), None, "a pointer to itself");
        assert_eq!(name(b"\x01a\xc0\x00", 0), None, "a part before each turn");
        assert_eq!(name(b"\x01a", 0), None, "truncated");
        assert_eq!(name(b"\x05ab", 0), None, "truncated");
        assert_eq!(name(b"\xc0", 0), None, "truncated");
        assert_eq!(name(b"\x41a\x00", 0), None, "an unknown kind of part");
        assert_eq!(name(b"\x00", 0), Some(None), "the root");
        assert_eq!(name(b"\x01*\x00", 0), Some(None), "no host");
    }

    #[test]
    fn a_name_of_255_bytes_is_the_longest() {
        let of = |parts: usize, last: usize| {
            let mut bytes = [&[63][..], &[b'x'; 63]].concat().repeat(parts);
            bytes.push(last as u8);
            bytes.extend(vec![b'x'; last]);
            bytes.push(0);
            bytes
        };
        assert!(name(&of(3, 61), 0).is_some() && of(3, 61).len() == 255);
        assert_eq!(name(&of(3, 62), 0), None);
    }

    #[test]
    fn a_chain_of_pointers_has_a_bound() {
        let chain = |pointers: usize| {
            let mut message = vec![0, 0];
            (0..pointers).for_each(|at| message.extend([0xc0, (2 * at) as u8]));
            name(&message, 2 * pointers)
        };
        assert_eq!(chain(MAX_POINTERS), Some(None));
        assert_eq!(chain(MAX_POINTERS + 1), None);
    }
}
