//! The procedures of `Env` that a test's operating system leaves to the real one.

/// Implements the named procedures of `Env` by the operating system.
macro_rules! system_does {
    ($($procedure:ident),+) => {
        $(system_does! { @$procedure })+
    };
    (@now) => {
        fn now(&self) -> farcall::env::Time {
            farcall::env::Env::now(&farcall::System)
        }
    };
    (@bind) => {
        fn bind(
            &self,
            address: std::net::SocketAddr,
            options: &farcall::env::SocketOptions,
        ) -> std::io::Result<std::sync::Arc<dyn farcall::env::Socket>> {
            farcall::env::Env::bind(&farcall::System, address, options)
        }
    };
    (@spawn) => {
        fn spawn(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> std::io::Result<()> {
            farcall::env::Env::spawn(&farcall::System, name, run)
        }
    };
    (@event) => {
        fn event(&self) -> std::sync::Arc<dyn farcall::env::Event> {
            farcall::env::Env::event(&farcall::System)
        }
    };
    (@entropy) => {
        fn entropy(&self, out: &mut [u8]) {
            farcall::env::Env::entropy(&farcall::System, out);
        }
    };
    (@shares_memory) => {
        fn shares_memory(&self) -> bool {
            farcall::env::Env::shares_memory(&farcall::System)
        }
    };
}
