//! A BPF array that this process has mapped: the descriptor of a segment, and the segment's bytes.
#![allow(unsafe_code)]

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::MapData;
use rustix::mm::{MapFlags, ProtFlags};

use crate::{MAX_SEGMENT_BYTES, Unavailable};

/// A segment in memory that the XDP program reads. The first page is the segment's descriptor.
#[derive(Debug)]
pub struct SegmentArray {
    map: MapData,
    start: NonNull<AtomicU64>,
    /// The length of the mapping in bytes.
    mapped: usize,
    /// The length of the segment in bytes.
    len: usize,
}

const WORD_BYTES: usize = size_of::<AtomicU64>();
const PAGE_BYTES: usize = 4096;
const DESCRIPTOR_WORDS: usize = PAGE_BYTES / WORD_BYTES;

/// The words of the descriptor, as in `program/read.c`.
const GENERATION: usize = 0;
const SIZE: usize = 1;
const ANSWERED: usize = 2;

// linux/bpf.h
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_F_MMAPABLE: u32 = 1 << 10;
const BPF_F_INNER_MAP: u32 = 1 << 12;

// SAFETY: all access to the mapping is to atomic words; nothing is tied to a thread.
unsafe impl Send for SegmentArray {}
// SAFETY: as above.
unsafe impl Sync for SegmentArray {}

impl SegmentArray {
    /// Makes an array for a segment of `len` bytes, all zeros, which is not offered yet.
    pub(crate) fn new(len: usize) -> Result<SegmentArray, Unavailable> {
        if len == 0 || len > MAX_SEGMENT_BYTES {
            let why = format!("the kernel serves segments of 1 to {MAX_SEGMENT_BYTES} bytes, not of {len}");
            return Err(Unavailable(why));
        }
        let mapped = PAGE_BYTES + len.next_multiple_of(PAGE_BYTES);
        let words = (mapped / WORD_BYTES) as u32;
        let flags = BPF_F_MMAPABLE | BPF_F_INNER_MAP;
        let (key, value) = (size_of::<u32>() as u32, WORD_BYTES as u32);
        let description = aya_obj::Map::new_from_params(BPF_MAP_TYPE_ARRAY, key, value, words, flags);
        let map = MapData::create(description, "farcall_segment", None)
            .map_err(|why| Unavailable(format!("making a BPF array of {mapped} bytes: {}", chain(&why))))?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let fd = map.fd().as_fd();
        // SAFETY: a new mapping at an address that the kernel chooses, so it overlaps no other memory of this
        // process.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), mapped, rights, MapFlags::SHARED, fd, 0) };
        let start =
            start.map_err(|why| Unavailable(format!("mapping a BPF array of {mapped} bytes: {why}")))?;
        let start = NonNull::new(start.cast()).ok_or_else(|| Unavailable("a mapping at zero".to_owned()))?;
        let array = SegmentArray { map, start, mapped, len };
        array.descriptor(SIZE).store(len as u64, Ordering::Release);
        Ok(array)
    }

    /// Returns the words of the segment.
    #[inline(always)]
    pub fn words(&self) -> &[AtomicU64] {
        &self.all()[DESCRIPTOR_WORDS..DESCRIPTOR_WORDS + self.len.div_ceil(WORD_BYTES)]
    }

    /// Returns how many reads of the segment the kernel has answered.
    pub fn answered(&self) -> u64 {
        self.descriptor(ANSWERED).load(Ordering::Relaxed)
    }

    pub(crate) fn map(&self) -> &MapData {
        &self.map
    }

    /// Makes the program answer reads of this generation, and of no other; of none if it is zero.
    ///
    /// Release: whoever sees the generation sees all that was written before. A store of a word after this
    /// one is seen by a run of the program only together with this one, as the program reads the generation
    /// again behind the words.
    pub(crate) fn set_generation(&self, generation: u64) {
        self.descriptor(GENERATION).store(generation, Ordering::Release);
    }

    fn descriptor(&self, word: usize) -> &AtomicU64 {
        &self.all()[word]
    }

    #[inline(always)]
    fn all(&self) -> &[AtomicU64] {
        // SAFETY: `mapped` bytes from `start` on, which is aligned to a page, are readable and writable until
        // `self` is dropped: they are mapped from an array that has as many, and that cannot shrink. Any
        // content is a value, and the XDP program takes words as a whole.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.mapped / WORD_BYTES) }
    }
}

impl Drop for SegmentArray {
    fn drop(&mut self) {
        // SAFETY: this is the range that was mapped. No reference into it is left, because references borrow
        // `self`.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}

/// Returns the text of an error and of its causes.
pub(crate) fn chain(why: &dyn std::error::Error) -> String {
    let mut text = why.to_string();
    let mut cause = why.source();
    while let Some(why) = cause {
        text.push_str(": ");
        text.push_str(&why.to_string());
        cause = why.source();
    }
    text
}
