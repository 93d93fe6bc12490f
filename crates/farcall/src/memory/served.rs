//! The carrier by packets: the exporter's runtime serves each access.

use bytes::Bytes;

use super::Result;
use super::access::{Access, AccessClient, Range, Refused};
use super::carrier::Carrier;
use crate::{CallFailed, Kind, Pending, Ran};

/// Accesses of one generation, as calls.
pub(super) struct Served {
    access: AccessClient,
    generation: u64,
}

impl Served {
    pub(super) fn new(access: AccessClient, generation: u64) -> Served {
        Served { access, generation }
    }
}

impl Carrier for Served {
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        let range = Range { offset, length: into.len() as u32 };
        fill(&self.access.read(self.generation, range)?, &mut [(offset, into)])
    }

    fn read_each(&self, ranges: &mut [(u64, &mut [u8])]) -> Result<()> {
        let asked = ranges.iter().map(|(offset, into)| Range { offset: *offset, length: into.len() as u32 }).collect();
        fill(&self.access.read_each(self.generation, asked)?, ranges)
    }

    fn write(&self, offset: u64, bytes: &[u8], notify: bool) -> Result<()> {
        self.access.write(self.generation, offset, notify, bytes)
    }

    fn compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Result<u64> {
        self.access.compare_and_swap(self.generation, offset, old, new)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn start_read(&self, offset: u64, len: u32) -> Pending<Bytes, Refused> {
        self.access.start().read(self.generation, Range { offset, length: len })
    }

    fn start_write(&self, offset: u64, bytes: &[u8]) -> Pending<(), Refused> {
        self.access.start().write(self.generation, offset, false, bytes)
    }

    fn start_compare_and_swap(&self, offset: u64, old: u64, new: u64) -> Pending<u64, Refused> {
        self.access.start().compare_and_swap(self.generation, offset, old, new)
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
