//! A segment that is imported.

use super::access::{Access, AccessClient, Range, Refused};
use super::segment::{Rights, TYPE};
use super::{Memory, Result};
use crate::names::Name;
use crate::{CallFailed, Kind, Pending, Ran, Runtime};

/// Somebody else's segment, as it was when it was imported. Clones are the same import.
#[derive(Clone)]
pub struct Remote {
    access: AccessClient,
    generation: u64,
    size: u64,
    rights: Rights,
}

impl Runtime {
    /// As [`memory::import`](super::import), from this runtime.
    ///
    /// # Errors
    /// As there.
    pub fn import_segment(&self, name: &str) -> crate::Result<Remote> {
        let access = self.import::<dyn Access>(&full_name(name)?)?;
        let facts = access.facts().map_err(|why| match why {
            crate::Error::Declared(refused) => CallFailed::new(Kind::NotExported, Ran::No).caused_by(refused),
            crate::Error::CallFailed(why) => why,
        })?;
        Ok(Remote { access, generation: facts.generation, size: facts.size, rights: Rights::from_bits(facts.rights) })
    }
}

/// The name under which a segment's accesses are exported: `Load` is `Memory/Load`, at an address too.
fn full_name(name: &str) -> crate::Result<String> {
    let wrong = |why| CallFailed::new(Kind::NoSuchName, Ran::No).caused_by(why);
    match name.parse::<Name>().map_err(wrong)? {
        Name::Type(segment) => Ok(format!("{TYPE}/{segment}")),
        Name::At { address, type_name: segment, instance: None } => Ok(format!("{address}/{TYPE}/{segment}")),
        _ => {
            let why = format!("{name:?}: a segment's name has one part, behind an address or not");
            Err(CallFailed::new(Kind::NoSuchName, Ran::No).because(why).into())
        }
    }
}

impl Remote {
    /// What the exporter allows us.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Which export of the segment it is: the number grows each time that it is exported anew.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Reads without waiting: many reads may be under way.
    pub fn start_read(&self, offset: u64, len: usize) -> Pending<bytes::Bytes, Refused> {
        let range = Range { offset, length: u32::try_from(len).unwrap_or(u32::MAX) };
        self.access.start().read(self.generation, range)
    }

    /// Writes without waiting.
    pub fn start_write(&self, offset: u64, bytes: &[u8]) -> Pending<(), Refused> {
        self.access.start().write(self.generation, offset, false, bytes)
    }

    /// Compares and swaps without waiting.
    pub fn start_compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Pending<u64, Refused> {
        self.access.start().compare_and_swap(self.generation, offset, old, new)
    }

    /// Where it can be known here that an access would be refused, it is.
    fn check(&self, offset: u64, len: usize, right: Rights) -> Result<()> {
        if !self.rights.contains(right) {
            return Err(Refused::NotPermitted.into());
        }
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(Refused::OutOfRange(self.size).into()),
        }
    }
}

impl Memory for Remote {
    fn size(&self) -> u64 {
        self.size
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        self.check(offset, into.len(), Rights::READ)?;
        let range = Range { offset, length: into.len() as u32 };
        fill(&self.access.read(self.generation, range)?, &mut [(offset, into)])
    }

    fn read_each(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        for (offset, into) in ranges.iter() {
            self.check(*offset, into.len(), Rights::READ)?;
        }
        let asked = ranges.iter().map(|(offset, into)| Range { offset: *offset, length: into.len() as u32 }).collect();
        fill(&self.access.read_each(self.generation, asked)?, ranges)
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len(), Rights::WRITE)?;
        self.access.write(self.generation, offset, false, bytes)
    }

    fn write_notify(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len(), Rights::WRITE)?;
        self.access.write(self.generation, offset, true, bytes)
    }

    fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Result<u64> {
        self.check(offset, 8, Rights::CAS)?;
        self.access.compare_and_swap(self.generation, offset, old, new)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

/// Distributes what was read.
fn fill(mut bytes: &[u8], ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
    let wanted: usize = ranges.iter().map(|(_, into)| into.len()).sum();
    if bytes.len() != wanted {
        let why = format!("{wanted} bytes were asked for, {} came", bytes.len());
        return Err(CallFailed::new(Kind::BadResult, Ran::Yes).because(why).into());
    }
    for (_, into) in ranges {
        let (now, rest) = bytes.split_at(into.len());
        into.copy_from_slice(now);
        bytes = rest;
    }
    Ok(())
}
