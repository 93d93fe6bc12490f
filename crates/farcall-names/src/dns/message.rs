//! The messages of DNS: a question, and what is used of an answer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use farcall_base::work;
use simple_dns::rdata::{OPT, RData, SRV};
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, RCODE, ResourceRecord, TYPE};

use super::domain::Domain;

/// The longest answer that a server may send by UDP. Larger datagrams can be lost on the way.
const MAX_UDP_ANSWER: u16 = 1232;

/// The most records of a section that are used. Further ones are passed over.
pub(super) const MAX_RECORDS: usize = 1000;

/// The length of a message's header, and of the shortest question and record.
const HEADER: usize = 12;
const MIN_QUESTION: usize = 5;
const MIN_RECORD: usize = 11;

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
        let mut packet = Packet::new_query(id);
        packet.set_flags(PacketFlag::RECURSION_DESIRED);
        let name = Name::new_unchecked(self.name.as_str());
        let question = simple_dns::Question::new(name, self.kind.into(), QCLASS::CLASS(CLASS::IN), false);
        packet.questions.push(question);
        if extended {
            *packet.opt_mut() =
                Some(OPT { opt_codes: Vec::new(), udp_packet_size: MAX_UDP_ANSWER, version: 0 });
        }
        packet.build_bytes_vec().unwrap_or_default()
    }

    /// Parses what may be the answer to this question.
    pub(super) fn parse_answer(&self, id: u16, bytes: &[u8]) -> Message {
        if bytes.len() < HEADER || bytes[..2] != id.to_be_bytes() || bytes[2] & 0x80 == 0 {
            return Message::Foreign;
        }
        // Only what repeats the question ends the wait for an answer, so that a forger has to know the question,
        // too, and a broken answer to another question does no harm.
        if !self.is_repeated_in(bytes) && !is_bare_refusal(bytes) {
            return Message::Foreign;
        }
        let malformed = || Message::Failed("its answer is malformed".to_owned());
        if !has_room(bytes) {
            return malformed();
        }
        let Ok(packet) = Packet::parse(bytes) else { return malformed() };
        let rcode = packet.rcode();
        if !matches!(rcode, RCODE::NoError | RCODE::NameError) {
            return Message::Failed(format!("it answers {rcode:?}"));
        }
        if packet.has_flags(PacketFlag::TRUNCATION) {
            return Message::Truncated;
        }
        Message::Answer(Answer::of(&packet))
    }

    /// Returns whether a message of at least a header's length has this question, and no other one. Looks at
    /// nothing else of the message, which may be malformed.
    fn is_repeated_in(&self, message: &[u8]) -> bool {
        let (header, rest) = message.split_at(HEADER);
        let Some(rest) = self.without_name(rest).filter(|_| header[4..6] == [0, 1]) else { return false };
        let kind = u16::from(QTYPE::from(self.kind)).to_be_bytes();
        rest.starts_with(&[kind, u16::from(QCLASS::CLASS(CLASS::IN)).to_be_bytes()].concat())
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
    message.len() == HEADER
        && message[4..] == [0; 8]
        && matches!(message[3] & 0x0f, FORMAT_ERROR | NOT_IMPLEMENTED)
}

/// Returns whether a message is as long as the counts in its header demand. The parser allocates by the
/// counts.
fn has_room(bytes: &[u8]) -> bool {
    let count = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    let records = count(6) + count(8) + count(10);
    count(4) <= 1 && HEADER + count(4) * MIN_QUESTION + records * MIN_RECORD <= bytes.len()
}

impl From<Kind> for QTYPE {
    fn from(kind: Kind) -> QTYPE {
        QTYPE::TYPE(match kind {
            Kind::Service => TYPE::SRV,
            Kind::Ipv4 => TYPE::A,
            Kind::Ipv6 => TYPE::AAAA,
        })
    }
}

impl Answer {
    fn of(packet: &Packet<'_>) -> Answer {
        let records = |section: &[ResourceRecord<'_>]| -> Vec<Record> {
            work::steps(section.len());
            section.iter().take(MAX_RECORDS).filter_map(Record::of).collect()
        };
        let negative_ttl = packet.name_servers.iter().find_map(|record| match &record.rdata {
            RData::SOA(soa) => Some(record.ttl.min(soa.minimum)),
            _ => None,
        });
        Answer {
            records: records(&packet.answers),
            additional: records(&packet.additional_records),
            negative_ttl,
        }
    }
}

impl Record {
    fn of(record: &ResourceRecord<'_>) -> Option<Record> {
        let data = match &record.rdata {
            RData::A(a) => Data::Address(Ipv4Addr::from(a.address).into()),
            RData::AAAA(aaaa) => Data::Address(IpAddr::from(Ipv6Addr::from(aaaa.address)).to_canonical()),
            RData::CNAME(alias) => Data::Alias(domain(&alias.0)?),
            // The target `.` says that there is no such service.
            RData::SRV(SRV { priority, port, target, .. }) => {
                Data::Target { priority: *priority, port: *port, host: domain(target)? }
            }
            _ => return None,
        };
        (record.class == CLASS::IN).then_some(Record { name: domain(&record.name)?, ttl: record.ttl, data })
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

fn domain(name: &Name<'_>) -> Option<Domain> {
    Domain::of_parts(name.as_bytes())
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
