//! The program Telephones of `tests/c/Telephones1.cr`, which every counterpart serves: the procedures are the
//! same functions of their arguments as in `handlers.c`.

use std::io::{Read, Write};
use std::sync::Arc;

use farcall::xdr::{Bounded, ByteString};
use farcall::{CallFailed, Kind as Failure, Ran};
use farcall_courier::bulk;

use bulk_data1::{Descriptor, Sink, Source};

farcall_courier::include_cr!("tests/c/Telephones1.cr");

const MAX_NAME_BYTES: usize = 20;
const MAX_BULK_BYTES: u32 = 100_000;

struct Here;

/// Returns the implementation.
pub fn here() -> Arc<dyn Telephones> {
    Arc::new(Here)
}

/// Returns the entry of a name.
pub fn entry(name: &[u8]) -> Entry {
    let place = match name.first() {
        Some(b'm') => Place::Mobile(5_551_234),
        Some(b'f') => Place::Fax,
        Some(b'p') => Place::Pager,
        _ => Place::Desk(Room { building: "Bay Hill".into(), door: 12 }),
    };
    let extension = name.iter().map(|byte| u32::from(*byte)).sum();
    Entry { name: name.to_vec().into(), extension, listed: name.len() % 2 == 1, place }
}

/// Returns the bulk data that the procedures send.
pub fn pattern(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|at| (7 * at) as u8).collect()
}

fn sum(bytes: &[u8]) -> Sum {
    let sum = bytes.iter().fold(0u16, |sum, byte| sum.wrapping_add(u16::from(*byte)));
    Sum { bytes: bytes.len() as u32, sum }
}

/// Returns the designator of a descriptor that names a third party.
fn party(descriptor: &Descriptor) -> Option<u16> {
    match descriptor {
        Descriptor::Null | Descriptor::Immediate => None,
        Descriptor::Passive(_) => Some(2),
        Descriptor::Active(_) => Some(3),
    }
}

const THIRD: &str = "null and immediate only";
const TOO_MANY: &str = "too many bytes";

impl Telephones for Here {
    fn nothing(&self) -> farcall::Result<()> {
        Ok(())
    }

    fn find(&self, name: &ByteString) -> farcall::Result<Entry, FindError> {
        match &name[..] {
            b"nobody" => Err(FindError::NoSuchEntry.into()),
            b"undeclared" => Err(CallFailed::new(Failure::Other, Ran::Yes).into()),
            name if name.len() > MAX_NAME_BYTES => {
                let limit = MAX_NAME_BYTES as u16;
                Err(FindError::NotPossible { limit, why: "the name is too long".into() }.into())
            }
            name => Ok(entry(name)),
        }
    }

    fn divide(&self, dividend: i32, divisor: i32) -> farcall::Result<Quotient, DivideError> {
        match (dividend.checked_div(divisor), dividend.checked_rem(divisor)) {
            (Some(quotient), Some(remainder)) => Ok(Quotient { quotient, remainder }),
            _ => Err(DivideError::NotPossible { limit: 0, why: "division by zero".into() }.into()),
        }
    }

    fn echo(&self, value: &Everything) -> farcall::Result<Everything> {
        Ok(value.clone())
    }

    fn reverse(&self, numbers: &[u16]) -> farcall::Result<Bounded<Numbers, 65535>> {
        Ok(numbers.iter().rev().copied().collect::<Vec<_>>().into())
    }

    fn remove(&self, name: &ByteString) -> farcall::Result<(), RemoveError> {
        if &name[..] == b"nobody" { Err(RemoveError::NoSuchEntry.into()) } else { Ok(()) }
    }

    fn store(&self, source: &Source) -> farcall::Result<Sum, StoreError> {
        if let Some(limit) = party(source) {
            return Err(StoreError::NotPossible { limit, why: THIRD.into() }.into());
        }
        let mut bytes = Vec::new();
        if *source == Source::Immediate
            && let Some(incoming) = bulk::incoming()
        {
            let read = incoming.take(u64::from(MAX_BULK_BYTES) + 1).read_to_end(&mut bytes);
            read.map_err(|why| CallFailed::new(Failure::Other, Ran::Yes).caused_by(why))?;
        }
        if bytes.len() > MAX_BULK_BYTES as usize {
            return Err(StoreError::NotPossible { limit: 100, why: TOO_MANY.into() }.into());
        }
        Ok(sum(&bytes))
    }

    fn fetch(&self, sink: &Sink, bytes: u32) -> farcall::Result<Sum, FetchError> {
        if let Some(limit) = party(sink) {
            return Err(FetchError::NotPossible { limit, why: THIRD.into() }.into());
        }
        if bytes > MAX_BULK_BYTES {
            return Err(FetchError::NotPossible { limit: 100, why: TOO_MANY.into() }.into());
        }
        let Some(mut outgoing) = bulk::outgoing().filter(|_| *sink == Sink::Immediate) else {
            return Ok(Sum::default());
        };
        let data = pattern(bytes);
        let written = outgoing.write_all(&data).and_then(|()| outgoing.finish());
        written.map_err(|why| CallFailed::new(Failure::Other, Ran::Yes).caused_by(why))?;
        Ok(sum(&data))
    }
}
