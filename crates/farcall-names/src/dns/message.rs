//! The messages of DNS (RFC 1035, section 4): a question, and what is used of an answer.

use std::net::{IpAddr, Ipv6Addr};

use farcall_base::work;

use super::domain::Domain;
use super::reader::{CLASS_IN, HEADER_BYTES, Reader, Record as RawRecord, kind};

/// The longest answer that a server may send by UDP. Larger datagrams can be lost on the way.
const MAX_UDP_ANSWER: u16 = 1232;

/// The most records of a section that are used. Further ones are passed over.
pub(super) const MAX_RECORDS: usize = 1000;

/// The flags of a header: that the server shall ask others, and that an answer is too long for a datagram.
const RECURSION_DESIRED: u16 = 0x0100;
const TRUNCATED: u16 = 0x0200;

/// The codes of answers that say which records there are, or that there are none.
const NO_ERROR: u16 = 0;
const NAME_ERROR: u16 = 3;

/// What is asked of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) name: Domain,
    pub(super) kind: Kind,
}

/// The type of the records that are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Service,
    Ipv4,
    Ipv6,
}

/// What a datagram or a message on a stream is.
#[derive(Debug)]
pub(super) enum Message {
    Answer(Answer),
    /// The answer is too long for a datagram.
    Truncated,
    /// The server cannot answer.
    Failed(String),
    /// It does not answer the question.
    Foreign,
}

/// What an answer says. Records whose names have letters other than those of hosts are left out.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) records: Vec<Record>,
    /// Records that may be useful, which the server has added.
    pub(super) additional: Vec<Record>,
    /// How long it stays true that there is no record, in seconds, if the server says so.
    pub(super) negative_ttl: Option<u32>,
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) name: Domain,
    /// How long the record may be kept, in seconds.
    pub(super) ttl: u32,
    pub(super) data: Data,
}

#[derive(Debug)]
pub(super) enum Data {
    Alias(Domain),
    Address(IpAddr),
    Target { priority: u16, port: u16, host: Domain },
}

impl Question {
    /// Returns the message of this question. With `extended`, it permits answers beyond 512 bytes (RFC 6891),
    /// which old servers do not understand.
    pub(super) fn encode(&self, id: u16, extended: bool) -> Vec<u8> {
        let mut message = Vec::new();
        let additional = u16::from(extended);
        [id, RECURSION_DESIRED, 1, 0, 0, additional].iter().for_each(|word| put(*word, &mut message));
        self.put(&mut message);
        if extended {
            // The root's name, and no options.
            message.push(0);
            [kind::OPTIONS, MAX_UDP_ANSWER, 0, 0, 0].iter().for_each(|word| put(*word, &mut message));
        }
        message
    }

    /// Appends the question as both messages have it.
    fn put(&self, message: &mut Vec<u8>) {
        for part in self.name.as_str().split('.') {
            // No part of a name has more than 63 bytes.
            message.push(part.len() as u8);
            message.extend_from_slice(part.as_bytes());
        }
        message.push(0);
        put(self.kind.number(), message);
        put(CLASS_IN, message);
    }

    /// Parses what may be the answer to this question.
    pub(super) fn parse_answer(&self, id: u16, bytes: &[u8]) -> Message {
        work::steps(1 + bytes.len() / 16);
        if bytes.len() < HEADER_BYTES || bytes[..2] != id.to_be_bytes() || bytes[2] & 0x80 == 0 {
            return Message::Foreign;
        }
        // Only what repeats the question ends the wait for an answer, so that a forger has to know the question,
        // too, and a broken answer to another question does no harm.
        if !self.is_repeated_in(bytes) && !is_bare_refusal(bytes) {
            return Message::Foreign;
        }
        let flags = u16::from_be_bytes([bytes[2], bytes[3]]);
        if flags & TRUNCATED != 0 && flags & 0x0f == NO_ERROR {
            return Message::Truncated;
        }
        let Some((answer, code)) = Answer::read(bytes) else {
            return Message::Failed("its answer is malformed".to_owned());
        };
        match code {
            NO_ERROR | NAME_ERROR => Message::Answer(answer),
            code => Message::Failed(format!("it answers {}", code_text(code))),
        }
    }

    /// Returns a message that answers this question with these flags, counts of records and records. For the
    /// fuzz target: no mutation of bytes would repeat the question.
    pub(super) fn answered(&self, rest: &[u8]) -> Vec<u8> {
        let (head, records) = rest.split_at_checked(8).unwrap_or((&[], rest));
        let word = |at: usize| head.get(at..at + 2).map_or(0, |word| u16::from_be_bytes([word[0], word[1]]));
        let mut message = Vec::new();
        [0, word(0) | 0x8000, 1, word(2), word(4), word(6)].iter().for_each(|word| put(*word, &mut message));
        self.put(&mut message);
        message.extend_from_slice(records);
        message
    }

    /// Returns whether a message of at least a header's length has this question, and no other one. Looks at
    /// nothing else of the message, which may be malformed.
    fn is_repeated_in(&self, message: &[u8]) -> bool {
        let (header, rest) = message.split_at(HEADER_BYTES);
        let Some(rest) = self.without_name(rest).filter(|_| header[4..6] == [0, 1]) else { return false };
        rest.starts_with(&[self.kind.number().to_be_bytes(), CLASS_IN.to_be_bytes()].concat())
    }

    /// Returns what follows the name of this question. No other name stands before a question's, so a server
    /// has nothing to which it could abbreviate it.
    fn without_name<'a>(&self, mut bytes: &'a [u8]) -> Option<&'a [u8]> {
        for part in self.name.as_str().split('.') {
            let (len, rest) = bytes.split_first()?;
            let (found, rest) = rest.split_at_checked(usize::from(*len))?;
            if !found.eq_ignore_ascii_case(part.as_bytes()) {
                return None;
            }
            bytes = rest;
        }
        bytes.split_first().filter(|(end, _)| **end == 0).map(|(_, rest)| rest)
    }
}

/// Returns whether a message of at least a header's length is a header alone that says why the server cannot
/// answer. A server that does not understand a question cannot repeat it.
fn is_bare_refusal(message: &[u8]) -> bool {
    const FORMAT_ERROR: u8 = 1;
    const NOT_IMPLEMENTED: u8 = 4;
    message.len() == HEADER_BYTES
        && message[4..] == [0; 8]
        && matches!(message[3] & 0x0f, FORMAT_ERROR | NOT_IMPLEMENTED)
}

/// Says what the code of a failure means.
fn code_text(code: u16) -> String {
    match code {
        1 => "FormatError".to_owned(),
        2 => "ServerFailure".to_owned(),
        4 => "NotImplemented".to_owned(),
        5 => "Refused".to_owned(),
        other => format!("with the code {other}"),
    }
}

impl Kind {
    /// Returns the number of the type in messages.
    fn number(self) -> u16 {
        match self {
            Kind::Service => kind::SERVICE,
            Kind::Ipv4 => kind::IPV4,
            Kind::Ipv6 => kind::IPV6,
        }
    }
}

impl Answer {
    /// Reads the records of a message of at least a header's length, and the code that says whether there are
    /// some. Returns `None` if the message is malformed.
    fn read(message: &[u8]) -> Option<(Answer, u16)> {
        let mut reader = Reader::new(message);
        let [_, flags, questions, answers, authorities, additional] = reader.words()?;
        // The question of this answer was compared.
        for _ in 0..questions {
            reader.question()?;
        }
        let (mut answer, mut code) = (Answer::default(), flags & 0x0f);
        for number in 0..answers {
            let record = reader.record()?;
            answer.records.extend(used(number, record)?);
        }
        for _ in 0..authorities {
            let record = reader.record()?;
            if answer.negative_ttl.is_none() && record.kind == kind::AUTHORITY {
                answer.negative_ttl = Some(record.ttl.min(record.least_ttl()?));
            }
        }
        for number in 0..additional {
            let record = reader.record()?;
            if record.kind == kind::OPTIONS {
                // The upper bits of the code (RFC 6891, 6.1.3).
                code |= (record.ttl >> 20) as u16 & 0x0ff0;
            }
            answer.additional.extend(used(number, record)?);
        }
        Some((answer, code))
    }
}

/// Reads a record of a section. Returns no record if it is of no use, or one of too many, and `None` if it is
/// malformed.
fn used(number: u16, record: RawRecord<'_>) -> Option<Option<Record>> {
    if usize::from(number) < MAX_RECORDS { Record::read(record) } else { Some(None) }
}

impl Record {
    /// Reads a record. Returns no record if it is of no use, and `None` if it is malformed.
    fn read(record: RawRecord<'_>) -> Option<Option<Record>> {
        let data = match record.kind {
            kind::IPV4 => Some(Data::Address(IpAddr::from(*record.bytes().first_chunk::<4>()?))),
            kind::IPV6 => {
                let ip = Ipv6Addr::from(*record.bytes().first_chunk::<16>()?);
                Some(Data::Address(IpAddr::from(ip).to_canonical()))
            }
            kind::ALIAS => record.name_after::<0>()?.1.map(Data::Alias),
            kind::SERVICE => {
                // The target `.` says that there is no such service.
                let ([priority, _, port], host) = record.name_after::<3>()?;
                host.map(|host| Data::Target { priority, port, host })
            }
            _ => None,
        };
        let (Some(data), CLASS_IN) = (data, record.class) else { return Some(None) };
        let RawRecord { name, ttl, .. } = record;
        Some(name.map(|name| Record { name, ttl, data }))
    }
}

impl Data {
    /// Returns whether the data is of the type that was asked for.
    pub(super) fn is(&self, kind: Kind) -> bool {
        match (self, kind) {
            (Data::Target { .. }, Kind::Service) => true,
            (Data::Address(ip), Kind::Ipv4) => ip.is_ipv4(),
            (Data::Address(ip), Kind::Ipv6) => ip.is_ipv6(),
            _ => false,
        }
    }
}

fn put(word: u16, message: &mut Vec<u8>) {
    message.extend_from_slice(&word.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question() -> Question {
        Question { name: Domain::parse("_store._udp.example.org").unwrap(), kind: Kind::Service }
    }

    /// Returns an answer without records.
    fn answer(id: u16) -> Vec<u8> {
        let mut bytes = question().encode(id, true);
        bytes[2] |= 0x80;
        bytes
    }

    #[test]
    fn an_answer_is_told_from_what_is_foreign() {
        assert!(matches!(question().parse_answer(7, &answer(7)), Message::Answer(_)));
        assert!(matches!(question().parse_answer(8, &answer(7)), Message::Foreign));
        assert!(matches!(question().parse_answer(7, &question().encode(7, true)), Message::Foreign));
        let other = Question { kind: Kind::Ipv4, ..question() };
        assert!(matches!(other.parse_answer(7, &answer(7)), Message::Foreign));
        let mut upper = answer(7);
        upper[13..18].make_ascii_uppercase();
        assert!(matches!(question().parse_answer(7, &upper), Message::Answer(_)), "case does not matter");
    }

    #[test]
    fn failures_truncation_and_nonexistence_are_told_apart() {
        let with = |at: usize, bits: u8| {
            let mut bytes = answer(7);
            bytes[at] |= bits;
            question().parse_answer(7, &bytes)
        };
        assert!(matches!(with(2, 0x02), Message::Truncated));
        assert!(matches!(with(3, 2), Message::Failed(why) if why.contains("ServerFailure")));
        assert!(matches!(with(3, 3), Message::Answer(_)), "a name that does not exist has no records");
    }

    #[test]
    fn counts_beyond_the_message_are_refused_before_anything_is_allocated() {
        let mut bytes = answer(7);
        bytes[4] = 0xff;
        assert!(matches!(question().parse_answer(7, &bytes), Message::Foreign));
        for at in [6, 8, 10] {
            let mut bytes = answer(7);
            bytes[at] = 0xff;
            assert!(matches!(question().parse_answer(7, &bytes), Message::Failed(_)), "{at}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(mut bytes: Vec<u8>, counts: [u8; 4]) {
            let mut message = answer(7);
            message.truncate(message.len() - 11);
            for (count, at) in counts.into_iter().zip([5, 7, 9, 11]) {
                message[at] = count % 8;
            }
            message.append(&mut bytes);
            let _ = question().parse_answer(7, &message);
        }
    }
}
