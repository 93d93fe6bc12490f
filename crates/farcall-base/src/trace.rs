//! The trace context that travels with a call.

/// Trace context that travels with a call (W3C trace-context: trace and parent span).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The trace's identifier.
    pub trace: [u8; 16],
    /// The caller's span.
    pub span: [u8; 8],
}
