//! A server that is called on connections.

use std::fmt::{self, Display as _};
use std::sync::Arc;
use std::time::Duration;

use farcall::env::Env;
use farcall::{ArgumentBudget, Ran};

use super::connection::{Called, Connection, Fault, explain};
use super::place::Place;
use super::settings::Settings;
use super::target::Carrier;
use crate::bulk::caller::Attached;
use crate::link::Patience;
use crate::wire::reply::Reply;

/// A server that is called on connections.
pub(super) struct Server {
    pub(super) settings: Settings,
    pub(super) place: Place,
}

impl Carrier for Server {
    type Connection = Connection;
    const MAY_REPEAT: bool = true;

    fn env(&self) -> &Arc<dyn Env> {
        &self.settings.env
    }

    fn patience(&self) -> Option<Duration> {
        self.settings.patience
    }

    fn arguments(&self) -> Arc<ArgumentBudget> {
        self.settings.arguments.clone()
    }

    fn max_argument_bytes(&self) -> usize {
        self.settings.max_message_bytes
    }

    fn max_reply_bytes(&self) -> usize {
        self.settings.max_message_bytes
    }

    fn open(&self, Patience { until, attendant }: Patience<'_>) -> Result<Connection, Fault> {
        let connecting = self.settings.env.now() + self.settings.connecting;
        let until = until.map_or(connecting, |until| until.min(connecting));
        let patience = Patience { until: Some(until), attendant };
        self.place.connect(&self.settings.env, until, patience, |address, patience| {
            self.settings.open(address, patience).map_err(|why| {
                let (kind, why) = explain(&why, "connection");
                Fault { kind, ran: Ran::No, why }
            })
        })
    }

    fn is_usable(&self, connection: &Connection) -> bool {
        connection.is_usable()
    }

    fn call<R>(
        &self,
        connection: &mut Connection,
        called: Called,
        arguments: &[u8],
        patience: Patience<'_>,
        bulk: Option<&mut Attached>,
        take: impl FnOnce(Reply<'_>) -> R,
    ) -> Result<R, Fault> {
        connection.call(called, arguments, patience, bulk, take)
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)
    }
}
