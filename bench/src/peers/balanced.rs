//! Farcall over UDP by a balanced stub: what it costs to choose a member for each call.
use anyhow::Result;
use farcall::Group;
use farcall_bench_method::{Calling, Peer, Serving, Setup};

use super::farcall::{Client, Echo, Farcall};

/// A balanced stub of this many members. All of them are the one server, so that only the choice differs.
pub struct Balanced(pub usize);

impl Peer for Balanced {
    fn transport(&self) -> &'static str {
        Farcall::OVER_UDP.transport()
    }

    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        Farcall::OVER_UDP.serve(setup)
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        let runtime = Farcall::OVER_UDP.runtime(setup)?;
        let member = |number: usize| Ok((number.to_string(), runtime.import::<dyn Echo>(address)?));
        let members: Vec<_> = (0..self.0).map(member).collect::<farcall::Result<_>>()?;
        Ok(Box::new(Client::new(Group::of(members).balanced(), setup)))
    }
}
