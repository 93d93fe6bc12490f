//! The types of frames, by the names that docs/protocol.md 3.3 gives them.
#![allow(missing_docs, reason = "the specification says what each is")]

pub const PADDING: u8 = 0x00;
pub const BIND: u8 = 0x01;
pub const WELCOME: u8 = 0x02;
pub const CHALLENGE: u8 = 0x03;
pub const STALE: u8 = 0x04;
pub const TICKET: u8 = 0x05;
pub const CALL: u8 = 0x10;
pub const RESULT: u8 = 0x11;
pub const SELECT: u8 = 0x12;
pub const CANCEL: u8 = 0x13;
pub const PROBE: u8 = 0x14;
pub const STATE: u8 = 0x15;
pub const MTU_PROBE: u8 = 0x16;
pub const MTU_ECHO: u8 = 0x17;
pub const POST: u8 = 0x18;
pub const DATA: u8 = 0x20;
pub const CREDIT: u8 = 0x21;
pub const STOP: u8 = 0x22;
/// The first of the types that a receiver may skip if it does not know them.
pub const NON_CRITICAL: u8 = 0x80;
pub const ACK: u8 = 0x80;
pub const USER_PROOF: u8 = 0x81;
pub const DRAIN: u8 = 0x82;
pub const WANTED: u8 = 0x83;
