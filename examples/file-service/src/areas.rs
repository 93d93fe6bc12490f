//! The layout of the server's memory segment, and the entries that the segment holds.
//!
//! ```text
//! counter            how many letters the server has answered: a null ping reads it
//! identity           a number that identifies the server
//! mailboxes          one for each clerk
//! leases             a word for each clerk into whose memory the server pushes entries
//! statistics         one entry
//! attributes         by handle
//! names              by directory and name: the handle
//! links              by handle
//! pages              by directory and the name that precedes the page
//! blocks             by handle and number: 8 KiB of a file
//! ```

use std::ops::Range;

use farcall::Xdr;

use crate::letter::Mailbox;
use crate::table::{Key, Table, hash};
use crate::{BLOCK, Found, Handle, Names, Shape};

/// The most clerks of a server.
pub(crate) const CLERKS: u32 = 64;

/// The offset of the counter of letters, which are requests that clerks write into the segment.
pub(crate) const COUNTER: u64 = 0;

/// The offset of the number that identifies the server.
pub(crate) const IDENTITY: u64 = 8;

/// The most bytes of a page of names.
pub(crate) const PAGE: usize = 4096;

/// The bytes of a mailbox for requests: room for a block, a path, and a header.
const REQUEST_BYTES: u64 = 16384;

/// The offsets of the mailboxes.
const MAILBOXES: Range<u64> = 64..64 + CLERKS as u64 * REQUEST_BYTES;

/// The offsets of the leases.
const LEASES: Range<u64> = MAILBOXES.end..MAILBOXES.end + CLERKS as u64 * 8;

/// The parts of a server's segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Areas {
    pub(crate) statistics: Table,
    pub(crate) attributes: Table,
    pub(crate) names: Table,
    pub(crate) links: Table,
    pub(crate) pages: Table,
    pub(crate) blocks: Table,
}

/// The entry of a name. It holds the name itself, because two names may have the same hash.
#[derive(Clone, Debug, Xdr)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) found: Found,
}

/// The entry of a page of a directory.
#[derive(Clone, Debug, Xdr)]
pub(crate) struct Paged {
    pub(crate) after: String,
    pub(crate) names: Names,
}

impl Named {
    /// Returns how many bytes the entry of a name has.
    pub(crate) fn length(name: &str) -> usize {
        4 + name.len().next_multiple_of(4) + 20
    }
}

impl Areas {
    /// Returns the areas of a server's segment, which follow the leases.
    pub(crate) fn new(shape: &Shape) -> Areas {
        Areas::at(LEASES.end, shape, 0)
    }

    /// Returns tables of this shape from `base` on. Each value has room for `more` bytes more than in a
    /// server's tables.
    pub(crate) fn at(base: u64, shape: &Shape, more: usize) -> Areas {
        let statistics = Table::new(base, 1, more + 64);
        let attributes = Table::new(statistics.end(), shape.attributes, more + 64);
        let names = Table::new(attributes.end(), shape.names, more + 288);
        let links = Table::new(names.end(), shape.links, more + 512);
        let pages = Table::new(links.end(), shape.pages, more + PAGE);
        let blocks = Table::new(pages.end(), shape.blocks, more + BLOCK);
        Areas { statistics, attributes, names, links, pages, blocks }
    }

    /// Returns the bytes of all tables but that of the blocks.
    pub(crate) fn but_blocks(&self) -> Range<u64> {
        self.statistics.start()..self.pages.end()
    }

    /// Returns the size of the segment in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.blocks.end()
    }
}

/// Returns the mailbox for the requests of a clerk.
pub(crate) fn mailbox(number: u32) -> Mailbox {
    Mailbox::new(MAILBOXES.start + u64::from(number) * REQUEST_BYTES, REQUEST_BYTES)
}

/// Returns the offset of the lease of the clerk with this mailbox.
pub(crate) fn lease(mailbox: u32) -> u64 {
    LEASES.start + u64::from(mailbox) * 8
}

/// Returns the mailboxes that overlap these bytes of the segment.
pub(crate) fn mailboxes(bytes: Range<u64>) -> Range<u32> {
    let number =
        |offset: u64| (offset.saturating_sub(MAILBOXES.start) / REQUEST_BYTES).min(u64::from(CLERKS)) as u32;
    if bytes.end <= MAILBOXES.start {
        return 0..0;
    }
    number(bytes.start)..number(bytes.end - 1).saturating_add(1).min(CLERKS)
}

/// Returns the key of a file's attributes or link.
pub(crate) fn of_file(file: Handle) -> Key {
    [file.device, file.inode, 0]
}

/// Returns the key of a name in a directory, or of the page after that name.
pub(crate) fn of_name(directory: Handle, name: &str) -> Key {
    [directory.device, directory.inode, hash(name)]
}

/// Returns the key of a block.
pub(crate) fn of_block(file: Handle, block: u64) -> Key {
    [file.device, file.inode, block]
}

#[cfg(test)]
mod tests {
    use super::*;
    use farcall_file_access::FileKind;

    #[test]
    fn a_name_takes_as_many_bytes_as_is_said() {
        for name in ["a", "abcd", "a longer one"] {
            let found = Found { handle: Handle { device: 1, inode: 2 }, kind: FileKind::File };
            let encoded = farcall::xdr::to_vec(&Named { name: name.into(), found }).unwrap();
            assert_eq!(encoded.len(), Named::length(name));
        }
    }

    #[test]
    fn a_mailbox_is_known_by_any_of_its_bytes() {
        let end = |number| mailbox(number).end();
        assert_eq!(mailboxes(0..8), 0..0);
        assert_eq!(mailboxes(end(0) - 1..end(0)), 0..1);
        assert_eq!(mailboxes(end(0) - 1..end(0) + 1), 0..2);
        assert_eq!(mailboxes(0..u64::MAX), 0..CLERKS);
        assert!(mailboxes(end(CLERKS - 1)..u64::MAX).is_empty());
    }
}
