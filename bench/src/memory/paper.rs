//! The figures of Thekkath, Levy & Lazowska (1994), between two DECstations on an ATM network.

/// Table 2, in microseconds: an access of one cell.
pub const READ: f64 = 45.0;
pub const WRITE: f64 = 30.0;
pub const CAS: f64 = 38.0;
/// Table 2, in microseconds: the additional time with notification.
pub const NOTIFICATION: f64 = 260.0;
/// Table 2, in Mbit/s: blocks of 4 KiB.
pub const THROUGHPUT: f64 = 35.4;

/// Table 3, in microseconds.
pub const EXPORT: Option<f64> = Some(665.0);
pub const IMPORT_CACHED: Option<f64> = Some(196.0);
pub const IMPORT: Option<f64> = Some(264.0);
pub const REVOKE: Option<f64> = Some(307.0);
pub const LOOK_UP_ASKING: Option<f64> = Some(524.0);

/// Section 4.2: from this many collisions on, the authors would transfer control.
pub const COLLISIONS_TO_ASK: u32 = 7;
