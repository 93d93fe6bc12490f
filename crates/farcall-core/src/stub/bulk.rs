//! Bulk: bytes of a file, as a stream (RPC2's side effects; Satyanarayanan & Siegel 1990, section IV).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;

use super::items::Items;
use super::stream::{AtEnd, Stream, Until};
use crate::xdr::Decode;
use crate::{CallFailed, Error, Kind, Never, Ran};

/// A result or an argument that consists of bytes, of a file or of memory. One end gives a reader, a file or
/// bytes; the other reads, or copies to a writer. What an end reads from or writes to does not cross: each
/// end names its own.
///
/// ```
/// use farcall::{Bulk, Result};
/// use std::io::Read;
/// use std::sync::Arc;
///
/// #[farcall::interface]
/// pub trait Files {
///     fn fetch(&self, name: &str, offset: u64) -> Result<Bulk>;
///     fn store(&self, name: &str, content: Bulk) -> Result<u64>;
/// }
///
/// struct Server;
/// impl Files for Server {
///     fn fetch(&self, _: &str, offset: u64) -> Result<Bulk> {
///         Ok(Bulk::from_reader(std::io::repeat(7).take(100_000 - offset)))
///     }
///     fn store(&self, _: &str, mut content: Bulk) -> Result<u64> {
///         Ok(content.copy_to(&mut std::io::sink(), u64::MAX).done()?)
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let files = farcall::stub::local::<dyn Files>(Arc::new(Server));
/// let mut bytes = Vec::new();
/// files.fetch("a", 60_000)?.read_to_end(&mut bytes).expect("it arrives");
/// assert_eq!(bytes, [7; 40_000]);
/// assert_eq!(files.store("b", Bulk::from_bytes(bytes))?, 40_000);
/// # Ok(())
/// # }
/// ```
pub type Bulk<E = Never> = Stream<Bytes, E>;

/// The most bytes of an item.
const ITEM_BYTES: usize = 48 << 10;

/// The most bytes of an item of a file, or of memory, after its first bytes. Longer items wake the sender
/// less often, but the first ones are to leave soon.
const LONG_ITEM_BYTES: usize = 256 << 10;
const BYTES_BEFORE_LONG_ITEMS: u64 = 1 << 20;

/// The most buffers that a sender of a file keeps, about as many as hold what is under way.
const MAX_BUFFERS: usize = 16;

/// The most of these buffers of which nothing is under way.
const MAX_SPARE_BUFFERS: usize = 2;

/// How far a copy got, and why it went no further.
#[derive(Debug)]
#[must_use = "a copy may have failed"]
pub struct Copied<E = Never> {
    /// How many bytes were written.
    pub bytes: u64,
    /// Why the copy ended, if not because everything was copied.
    pub failed: Option<Error<E>>,
}

impl<E> Copied<E> {
    /// Returns how many bytes were written.
    ///
    /// # Errors
    /// Why the copy went no further.
    pub fn done(self) -> crate::Result<u64, E> {
        match self.failed {
            None => Ok(self.bytes),
            Some(why) => Err(why),
        }
    }
}

/// Reads a file from a position on, whatever is read of it elsewhere: clones of a `File` share its cursor.
struct FileFrom {
    file: File,
    offset: u64,
}

impl Read for FileFrom {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        #[cfg(unix)]
        let count = std::os::unix::fs::FileExt::read_at(&self.file, into, self.offset)?;
        #[cfg(windows)]
        let count = std::os::windows::fs::FileExt::seek_read(&self.file, into, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

impl<E: 'static> Stream<Bytes, E> {
    /// Returns what a reader gives, until its end. If the reader fails, the transfer fails.
    pub fn from_reader(reader: impl Read + Send + 'static) -> Bulk<E> {
        Stream::made(Items::Read(Box::new(chunks(reader, 1, ITEM_BYTES))))
    }

    /// Returns the bytes of a file from `offset` on, at most `quota` of them. They are read by their
    /// positions, so a file may be [cloned](File::try_clone) for several transfers at once.
    ///
    /// # Errors
    /// When the file has no positions.
    pub fn from_file(mut file: File, offset: u64, quota: u64) -> io::Result<Bulk<E>> {
        // (This moves nothing. It fails for a pipe.)
        file.stream_position()?;
        let chunks = chunks(FileFrom { file, offset }.take(quota), MAX_BUFFERS, LONG_ITEM_BYTES);
        Ok(Stream::made(Items::AtHand(Box::new(chunks))))
    }

    /// Returns bytes of memory.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Bulk<E> {
        let mut bytes = bytes.into();
        // The copies are this library's own, while the drop of `bytes` may be code of the user's.
        Stream::made(Items::AtHand(Box::new(std::iter::from_fn(move || {
            let len = bytes.len().min(LONG_ITEM_BYTES);
            (len > 0).then(|| Ok(Bytes::copy_from_slice(&bytes.split_to(len))))
        }))))
    }

    /// Tells `progress` how many bytes have been handed over to be sent, whenever some are.
    pub fn with_progress(self, mut progress: impl FnMut(u64) + Send + 'static) -> Bulk<E>
    where
        E: for<'a> Decode<'a>,
    {
        let mut bytes = 0;
        self.seen_by(move |chunk| {
            bytes += chunk.len() as u64;
            progress(bytes);
        })
    }

    /// Has `then` run at the server, in the thread that serves the call, when these bytes, the result of the
    /// procedure, have been handed over or have arrived, and before the call ends (RPC2's CHECKSIDEEFFECT).
    /// `then` gets how many bytes were handed over, and why not all were, or why they did not arrive. An
    /// error that it returns fails the transfer.
    ///
    /// ```
    /// use farcall::{Bulk, Result, Until};
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// #[farcall::interface]
    /// pub trait Spool {
    ///     /// Returns the letter, which is removed once it has arrived.
    ///     fn take(&self) -> Result<Bulk>;
    /// }
    ///
    /// struct Server(Arc<AtomicU64>);
    /// impl Spool for Server {
    ///     fn take(&self) -> Result<Bulk> {
    ///         let arrived = self.0.clone();
    ///         Ok(Bulk::from_bytes("a letter").then(Until::Arrived, move |bytes, failed| {
    ///             if failed.is_none() {
    ///                 arrived.store(bytes, Ordering::Relaxed);
    ///             }
    ///             Ok(())
    ///         }))
    ///     }
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// let arrived = Arc::new(AtomicU64::new(0));
    /// let spool = farcall::stub::local::<dyn Spool>(Arc::new(Server(arrived.clone())));
    /// spool.take()?.copy_to(&mut std::io::sink(), u64::MAX).done()?;
    /// assert_eq!(arrived.load(Ordering::Relaxed), 8);
    /// # Ok(())
    /// # }
    /// ```
    pub fn then(
        self,
        until: Until,
        then: impl FnOnce(u64, Option<&Error<E>>) -> crate::Result<(), E> + Send + 'static,
    ) -> Bulk<E>
    where
        E: for<'a> Decode<'a>,
    {
        let bytes = Arc::new(AtomicU64::new(0));
        let counted = bytes.clone();
        let run = move |failed: Option<&Error<E>>| then(bytes.load(Relaxed), failed);
        let counting = self.with_progress(move |bytes| counted.store(bytes, Relaxed));
        counting.with_end(AtEnd { until, run: Box::new(run) })
    }

    /// Writes all bytes to a writer, but no more than `quota`: the transfer fails if there are more.
    pub fn copy_to(&mut self, writer: &mut dyn Write, quota: u64) -> Copied<E>
    where
        E: for<'a> Decode<'a>,
    {
        self.copy_with(writer, quota, |_| ())
    }

    /// Copies as [`copy_to`](Stream::copy_to) does, and tells `progress` how many bytes were written,
    /// whenever some were.
    pub fn copy_with(
        &mut self,
        writer: &mut dyn Write,
        quota: u64,
        mut progress: impl FnMut(u64),
    ) -> Copied<E>
    where
        E: for<'a> Decode<'a>,
    {
        let mut bytes = 0;
        loop {
            let left = usize::try_from(quota - bytes).unwrap_or(usize::MAX);
            let written = self.with_part(usize::MAX, |part| {
                let allowed = &part[..part.len().min(left)];
                let written = writer.write_all(allowed);
                written.map(|()| (allowed.len(), part.len()))
            });
            let (written, came) = match written {
                Ok(Ok((_, 0))) => return Copied { bytes, failed: None },
                Ok(Ok(written)) => written,
                Ok(Err(why)) => return Copied { bytes, failed: Some(local("writing", why).into()) },
                Err(why) => return Copied { bytes, failed: Some(why) },
            };
            bytes += written as u64;
            progress(bytes);
            if written < came {
                let why = format!("more than {quota} bytes");
                let failed = Some(CallFailed::new(Kind::TooLarge, Ran::Yes).because(why).into());
                return Copied { bytes, failed };
            }
        }
    }
}

/// Blocks until bytes arrive.
impl<E: for<'a> Decode<'a> + std::fmt::Debug + Send + Sync + 'static> Read for Stream<Bytes, E> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let read = self.with_part(buffer.len(), |part| {
            buffer[..part.len()].copy_from_slice(part);
            part.len()
        });
        read.map_err(io::Error::other)
    }
}

/// Returns what a reader gives, part by part. A failure is the last item.
fn chunks<E>(
    mut reader: impl Read,
    most_buffers: usize,
    longest: usize,
) -> impl Iterator<Item = crate::Result<Bytes, E>> {
    let (mut over, mut read) = (false, 0);
    let mut buffers = Buffers { lent: VecDeque::new(), most: most_buffers };
    std::iter::from_fn(move || {
        if over {
            return None;
        }
        let mut buffer = buffers.take(if read < BYTES_BEFORE_LONG_ITEMS { ITEM_BYTES } else { longest });
        let item = match read_some(&mut reader, &mut buffer) {
            Ok(0) => None,
            Ok(len) => {
                read += len as u64;
                Some(Ok(buffers.lend(buffer, len)))
            }
            Err(why) => Some(Err(local("reading", why).into())),
        };
        over = !matches!(item, Some(Ok(_)));
        item
    })
}

/// The buffers of a reader's items. One whose item has arrived is used again.
struct Buffers {
    lent: VecDeque<Buffer>,
    most: usize,
}

/// A buffer that items share.
#[derive(Clone)]
struct Buffer(Arc<Box<[u8]>>);

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Buffers {
    /// Returns a buffer of so many bytes that no item shares.
    fn take(&mut self, len: usize) -> Box<[u8]> {
        // What was used last is most likely still in the processor's cache.
        let free = self.lent.iter().rposition(|Buffer(lent)| Arc::strong_count(lent) == 1);
        let free = free.and_then(|place| self.lent.remove(place));
        let free = free.and_then(|Buffer(lent)| Arc::try_unwrap(lent).ok());
        // Of what was under way and has arrived, little is kept for the next items.
        let mut spare = 0;
        self.lent.retain(|Buffer(lent)| {
            spare += usize::from(Arc::strong_count(lent) == 1);
            Arc::strong_count(lent) > 1 || spare <= MAX_SPARE_BUFFERS
        });
        free.filter(|free| free.len() == len).unwrap_or_else(|| vec![0; len].into())
    }

    /// Returns the first bytes of a buffer as an item.
    fn lend(&mut self, buffer: Box<[u8]>, len: usize) -> Bytes {
        let few = len < buffer.len() / 2;
        let copied = few.then(|| Bytes::copy_from_slice(&buffer[..len]));
        let buffer = Buffer(Arc::new(buffer));
        if self.lent.len() == self.most {
            self.lent.pop_front();
        }
        self.lent.push_back(buffer.clone());
        // An item of few bytes does not keep the whole buffer.
        copied.unwrap_or_else(|| Bytes::from_owner(buffer).slice(..len))
    }
}

/// Reads once, however often that is interrupted.
fn read_some(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match reader.read(buffer) {
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// The failure of a transfer whose file, at this end, could not be used.
fn local(doing: &str, why: io::Error) -> CallFailed {
    CallFailed::local(doing, why).but_ran(Ran::Yes)
}
