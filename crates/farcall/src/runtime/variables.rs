//! The `FARCALL_*` variables, which fill in the settings that a program leaves unset.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use farcall_names::{socket_address, socket_address_at};
use farcall_proto::ArgumentBudget;

use super::settings::Settings;
use crate::env::Env;
use crate::{CallFailed, Kind, Ran};

/// The variables of the process, without those of settings that the program has made.
pub(super) struct Variables<'a> {
    /// None if no variable is to have an effect.
    env: Option<&'a dyn Env>,
    /// The variables of the settings that the program has made.
    program: &'a [String],
    used: RefCell<Vec<String>>,
}

impl<'a> Variables<'a> {
    pub(super) fn new(env: Option<&'a dyn Env>, program: &'a [String]) -> Variables<'a> {
        Variables { env, program, used: RefCell::default() }
    }

    /// Returns the variables that had an effect.
    pub(super) fn used(self) -> Vec<String> {
        self.used.into_inner()
    }

    /// Returns a variable's value, if it has an effect. An empty one has none.
    pub(super) fn value(&self, name: &'static str) -> Option<String> {
        if self.program.iter().any(|made| made == name) {
            return None;
        }
        let value = self.env?.variable(name).filter(|value| !value.is_empty())?;
        self.used.borrow_mut().push(name.into());
        Some(value)
    }

    /// Fills in the settings.
    pub(super) fn fill_in(&self, settings: &mut Settings) -> Result<(), CallFailed> {
        if let Some(Listening(address)) = self.parse("FARCALL_ADDRESS")? {
            settings.address = address;
        }
        if let Some(Advertised(addresses)) = self.parse("FARCALL_ADVERTISE")? {
            settings.advertise = addresses;
        }
        self.set_switch("FARCALL_OPEN", &mut settings.open)?;
        self.fill_in_limits(settings)?;
        if let Some(micros) = self.parse("FARCALL_SPIN_US")? {
            settings.spin = Duration::from_micros(micros);
        }
        if let Some(millis) = self.parse("FARCALL_PATIENCE_MS")? {
            settings.patience = Duration::from_millis(millis);
        }
        if let Some(millis) = self.parse("FARCALL_SERVER_PATIENCE_MS")? {
            settings.server_patience = Some(Duration::from_millis(millis));
        }
        self.set_switch("FARCALL_FULL_PATIENCE", &mut settings.full_patience)?;
        self.set("FARCALL_SOCKET_BUFFER", &mut settings.socket_buffer)?;
        if let Some(bytes) = self.parse("FARCALL_ARGUMENT_BYTES")? {
            settings.arguments = Arc::new(ArgumentBudget::new(bytes));
        }
        self.set_switch("FARCALL_DESCRIBE", &mut settings.describe)?;
        self.set_switch("FARCALL_SHM", &mut settings.shared_memory)?;
        if let Some(interfaces) = self.value("FARCALL_XDP") {
            settings.kernel_served = interfaces.split(',').map(str::to_owned).collect();
        }
        self.fill_in_keys(settings)
    }

    fn fill_in_limits(&self, settings: &mut Settings) -> Result<(), CallFailed> {
        let limits = &mut settings.limits;
        if let Some(workers) = self.parse("FARCALL_WORKERS")? {
            limits.workers = usize::max(workers, 1);
        }
        self.set("FARCALL_THREADS", &mut limits.threads)?;
        self.set("FARCALL_QUEUE", &mut limits.queue)?;
        self.set("FARCALL_QUEUE_BYTES", &mut limits.queue_bytes)?;
        if let Some(millis) = self.parse("FARCALL_QUEUE_MS")? {
            limits.queue_time = Duration::from_millis(millis);
        }
        if let Some(millis) = self.parse("FARCALL_SLOW_MS")? {
            limits.slow = Some(Duration::from_millis(millis));
        }
        Ok(())
    }

    #[cfg(feature = "secure")]
    fn fill_in_keys(&self, settings: &mut Settings) -> Result<(), CallFailed> {
        match self.value("FARCALL_LEVEL").as_deref() {
            None => {}
            Some("secure") => settings.level = crate::Level::Secure,
            Some("authenticated") => settings.level = crate::Level::Authenticated,
            Some(level) => return Err(invalid("FARCALL_LEVEL", level)),
        }
        self.set("FARCALL_PADDING", &mut settings.padding)?;
        if let Some(directory) = self.value("FARCALL_KEYS") {
            settings.keys = Some(crate::Keys::open(directory)?);
        }
        Ok(())
    }

    #[cfg(not(feature = "secure"))]
    fn fill_in_keys(&self, _: &mut Settings) -> Result<(), CallFailed> {
        if self.value("FARCALL_KEYS").is_some() {
            let why = "FARCALL_KEYS is set, but this program was built without the feature `secure`";
            return Err(CallFailed::new(Kind::Local, Ran::No).because(why));
        }
        Ok(())
    }

    fn parse<T: FromStr>(&self, name: &'static str) -> Result<Option<T>, CallFailed> {
        self.value(name).map(|value| value.parse().map_err(|_| invalid(name, &value))).transpose()
    }

    fn set<T: FromStr>(&self, name: &'static str, setting: &mut T) -> Result<(), CallFailed> {
        if let Some(value) = self.parse(name)? {
            *setting = value;
        }
        Ok(())
    }

    /// Sets a setting that is either on or off.
    fn set_switch(&self, name: &'static str, setting: &mut bool) -> Result<(), CallFailed> {
        match self.value(name).as_deref() {
            None => {}
            Some("on" | "1") => *setting = true,
            Some("off" | "0") => *setting = false,
            Some(value) => return Err(invalid(name, value)),
        }
        Ok(())
    }
}

/// Returns the error for a value that a setting cannot have.
fn invalid(name: &str, value: &str) -> CallFailed {
    CallFailed::new(Kind::Local, Ran::No).because(format!("the variable {name} cannot be {value:?}"))
}

/// The address on which exports listen. It may name a network interface.
struct Listening(SocketAddr);

impl FromStr for Listening {
    type Err = ();

    fn from_str(text: &str) -> Result<Listening, ()> {
        socket_address(text).map(Listening).ok_or(())
    }
}

/// Addresses to publish, written with or without a port, with commas between them.
struct Advertised(Vec<SocketAddr>);

impl FromStr for Advertised {
    type Err = ();

    fn from_str(text: &str) -> Result<Advertised, ()> {
        let address = |text: &str| socket_address(text).or_else(|| socket_address_at(text, 0));
        text.split(',').map(address).collect::<Option<_>>().map(Advertised).ok_or(())
    }
}
