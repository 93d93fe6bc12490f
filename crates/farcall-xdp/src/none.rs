//! Replaces the XDP program on systems for which there is none. Nothing can be loaded.

use std::sync::atomic::AtomicU64;

use crate::{Conversation, Mode, Unavailable};

/// The XDP program. There is none on this system.
#[derive(Debug)]
pub enum Kernel {}

/// A segment in memory that the XDP program reads. There is none on this system.
#[derive(Debug)]
pub enum SegmentArray {}

impl SegmentArray {
    /// Returns the words of the segment.
    pub fn words(&self) -> &[AtomicU64] {
        match *self {}
    }

    /// Returns how many reads of the segment the kernel has answered.
    pub fn answered(&self) -> u64 {
        match *self {}
    }
}

impl Kernel {
    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn load(_: &[String]) -> Result<Kernel, Unavailable> {
        Err(Unavailable("the kernel serves segments only under Linux on x86-64".to_owned()))
    }

    /// Returns the interfaces to which the program is attached, and how.
    pub fn attached(&self) -> &[(String, Mode)] {
        match *self {}
    }

    /// Makes memory for a segment.
    ///
    /// # Errors
    /// Never.
    pub fn array(&self, _: usize) -> Result<SegmentArray, Unavailable> {
        match *self {}
    }

    /// Offers a segment.
    ///
    /// # Errors
    /// Never.
    pub fn offer(&self, _: u64, _: &SegmentArray, _: u64) -> Result<(), Unavailable> {
        match *self {}
    }

    /// Ends the offer of a segment.
    pub fn withhold(&self, _: u64, _: &SegmentArray) {
        match *self {}
    }

    /// Tells the program of a conversation.
    ///
    /// # Errors
    /// Never.
    pub fn admit(&self, _: &Conversation) -> Result<(), Unavailable> {
        match *self {}
    }

    /// Returns how many calls of a conversation the program has answered.
    pub fn answered(&self, _: u64) -> Option<u32> {
        match *self {}
    }

    /// Makes the program forget a conversation.
    pub fn forget(&self, _: u64) {
        match *self {}
    }

    #[doc(hidden)]
    pub fn run(&self, _: &[u8]) -> Result<Option<Vec<u8>>, Unavailable> {
        match *self {}
    }

    /// Detaches the program.
    pub fn detach(&self) {
        match *self {}
    }
}
