//! Datagrams written by hand, frame by frame (docs/protocol.md, section 3).
use xxhash_rust::xxh3::xxh3_64;

pub const BIND: u8 = 0x01;
pub const CALL: u8 = 0x10;
pub const SELECT: u8 = 0x12;
pub const CANCEL: u8 = 0x13;
pub const PROBE: u8 = 0x14;
pub const MTU_PROBE: u8 = 0x16;
pub const POST: u8 = 0x18;
pub const ACK: u8 = 0x80;

const TAG: usize = 8;

/// The most bytes of the frames of a datagram that is being written.
pub const MOST: usize = 60_000;

/// A datagram.
pub struct Datagram {
    bytes: Vec<u8>,
    local: bool,
}

impl Datagram {
    /// Returns a datagram without frames, in the local or in the open scheme.
    pub fn new(conversation: u64, number: u64, local: bool) -> Datagram {
        let mut bytes = vec![1, u8::from(local), 0, 0];
        bytes.extend(conversation.to_be_bytes());
        bytes.extend(number.to_be_bytes());
        Datagram { bytes, local }
    }

    /// Adds a frame.
    pub fn frame(&mut self, kind: u8, flags: u8, body: &[u8]) {
        self.bytes.extend([kind, flags]);
        self.bytes.extend((body.len() as u16).to_be_bytes());
        self.bytes.extend(body);
    }

    /// Adds a frame that begins with a call's position.
    pub fn about(&mut self, kind: u8, flags: u8, (activity, sequence): (u32, u64), rest: &[u8]) {
        let mut body = activity.to_be_bytes().to_vec();
        body.extend([0; 4]);
        body.extend(sequence.to_be_bytes());
        body.extend(rest);
        self.frame(kind, flags, &body);
    }

    /// Adds a call in one datagram.
    pub fn call(&mut self, position: (u32, u64), export: u64, procedure: u32, arguments: &[u8]) {
        let mut rest = export.to_be_bytes().to_vec();
        rest.extend(procedure.to_be_bytes());
        rest.extend(arguments);
        self.about(CALL, 0, position, &rest);
    }

    /// Adds a fragment of a call's arguments: `len` bytes from an offset, of a total.
    pub fn fragment(
        &mut self,
        position: (u32, u64),
        export: u64,
        procedure: u32,
        (offset, len, total): (u32, u32, u32),
    ) {
        let mut rest = export.to_be_bytes().to_vec();
        [procedure, total, offset].iter().for_each(|word| rest.extend(word.to_be_bytes()));
        rest.resize(rest.len() + len as usize, 7);
        self.about(CALL, 2, position, &rest);
    }

    pub fn has_room(&self, more: usize) -> bool {
        self.bytes.len() + more <= MOST
    }

    /// Returns the whole datagram, with its tag.
    pub fn finish(mut self) -> Vec<u8> {
        let tag = if self.local { (self.bytes.len() + TAG) as u64 } else { xxh3_64(&self.bytes) };
        self.bytes.extend(tag.to_be_bytes());
        self.bytes
    }
}
