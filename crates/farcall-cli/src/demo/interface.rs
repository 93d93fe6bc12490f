//! The interface of the demo's servers besides files.

/// Procedures to try calls on.
#[farcall::interface]
pub trait Demo {
    /// A greeting, by the server's name for itself.
    fn hello(&self, name: &str) -> farcall::Result<String>;

    /// Counts the execution of the call with this number.
    fn count(&self, number: u32) -> farcall::Result<u32>;

    /// Returns the counts.
    fn counted(&self) -> farcall::Result<Counted>;

    /// Sleeps for that long.
    #[blocking]
    fn sleep(&self, ms: u32) -> farcall::Result<()>;

    /// Prints on the server's standard output that it has begun, and never returns.
    #[blocking]
    fn hang(&self) -> farcall::Result<()>;

    /// Does nothing.
    fn null(&self) -> farcall::Result<()>;

    /// Returns its argument.
    fn echo(&self, bytes: &[u8]) -> farcall::Result<Vec<u8>>;
}

/// Executions of [`Demo::count`].
#[derive(Debug, PartialEq, Eq, farcall::Xdr)]
pub struct Counted {
    /// The number of all executions.
    pub executions: u32,
    /// The number of calls that were executed more than once.
    pub repeated: u32,
}

/// A procedure that asks its caller. It has an interface of its own, because calls of an interface with
/// signals take no fast path.
#[farcall::interface]
pub trait Asking {
    /// Asks which process the caller is, and returns the answer.
    fn ask(&self) -> farcall::Result<Answered>;

    /// The process `asker` asks which process its caller is.
    #[signal]
    fn who(&self, asker: u32) -> u32;
}

/// The result of [`Asking::ask`].
#[derive(Debug, farcall::Xdr)]
pub struct Answered {
    /// The server's process.
    pub server: u32,
    /// The answer.
    pub told: u32,
}
