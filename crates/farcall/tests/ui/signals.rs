//! What a signal and a stream cannot be.

#[farcall::interface]
trait Signals {
    #[signal]
    fn full(&self) -> u64 {
        0
    }

    #[signal]
    fn low(&self) -> farcall::Result<u64>;

    #[signal]
    fn items(&self, items: farcall::Stream<u64>);

    fn join(&self, left: farcall::Stream<u64>, right: farcall::Stream<u64>) -> farcall::Result<()>;
}

#[farcall::interface(async)]
trait Awaited {
    #[signal]
    fn full(&self) -> u64;

    fn below(&self, limit: u64) -> farcall::Result<farcall::Stream<u64>>;
}

fn main() {}
