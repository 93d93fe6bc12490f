//! The trace context that travels with a call.

/// The trace context that travels with a call: the trace and the parent span of W3C Trace Context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The trace's identifier.
    pub trace: [u8; 16],
    /// The caller's span.
    pub span: [u8; 8],
}
