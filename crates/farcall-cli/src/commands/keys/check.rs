//! `farcall keys check`: makes a handshake with a server, and says who answered.

use std::fmt::Write as _;
use std::net::{SocketAddr, ToSocketAddrs as _};

use clap::{Args, ValueHint};
use farcall::dynamic::{self, Pinger};
use farcall::names::Name;
use farcall::{Answerer, CallFailed, Error, Keys, Kind, Level, Runtime};
use farcall_keys::{Keyring, Right, Scope};
use serde_json::{Value, json};

use super::{Directory, date, describe_grant, expected_found};
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::text::printable;

/// Make a handshake with a server, and say who answered and what it lets this end do
///
/// Shows the server's key, why this end accepts it, and how calls would be sealed. With a name, the server
/// must be one that may answer for it, and is asked what this end may do with it. If the handshake fails, the
/// message says what was expected, what came, and what to do.
///
/// The exit code is 4 if there is no handshake, and 1 if this end may do nothing with the name.
#[derive(Debug, Args)]
pub struct Check {
    /// Where the server listens
    #[arg(value_name = "HOST:PORT", value_hint = ValueHint::Hostname)]
    server: String,
    /// The name that it should answer for: a type, or a type and an instance [default: any that it may]
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    directory: Directory,
}

/// What a server says to one thing that this end wants to do: `None` if it lets it.
type Verdict = Option<String>;

/// What this end may do with a name, as far as asking does no harm.
struct Rights {
    health: Verdict,
    description: Verdict,
    procedures: Vec<String>,
}

impl Check {
    pub fn run(&self, output: &Output) -> Outcome {
        let name = self.name()?;
        let keys = Keys::open(self.directory.path()?).map_err(|why| expected_found(&detail(why)))?;
        let keyring = keys.keyring();
        let runtime = Runtime::builder().keys(keys).shared_memory(false).build()?;
        let answerer = self.answerer(&runtime, &keyring, name.as_deref().unwrap_or_default())?;
        let rights = match &name {
            Some(name) => Some(rights(&runtime, &format!("udp://{}/{name}", answerer.address))?),
            None => None,
        };
        output.page(
            || to_json(name.as_deref(), &answerer, &keyring, rights.as_ref()),
            || table(name.as_deref(), &answerer, &keyring, rights.as_ref()),
        )?;
        let (Some(name), Some(Rights { health: Some(why), description: Some(_), .. })) = (name, rights)
        else {
            return Ok(());
        };
        Err(expected_found(&why).about(format!("this end may do nothing with {name} that was asked")))
    }

    /// Returns the name, as the protocol asks for it.
    fn name(&self) -> Outcome<Option<String>> {
        let Some(name) = &self.name else { return Ok(None) };
        match name.parse() {
            Ok(Name::Type(_) | Name::Instance { .. }) => Ok(Some(name.clone())),
            Ok(_) => Err(Failure::usage(format!("{name} has an address; the server is named before it"))),
            Err(why) => Err(Failure::usage(why.to_string())),
        }
    }

    /// Returns who answers at the first of the server's addresses that answers.
    fn answerer(&self, runtime: &Runtime, keyring: &Keyring, name: &str) -> Outcome<Answerer> {
        let addresses = self.server.to_socket_addrs().map_err(|why| {
            Failure::usage(format!("{:?} is no HOST:PORT: {why}", self.server))
                .hint("a server has no usual port; name that of its FARCALL_ADDRESS, as in 10.0.0.7:7000")
        })?;
        let mut failed = None;
        for address in addresses.collect::<Vec<SocketAddr>>() {
            match runtime.answerer(address, name) {
                Ok(answerer) => return Ok(answerer),
                // What a server says is more telling than that another address is silent.
                Err(why) => failed = failed.filter(|_| is_silence(&why)).or(Some(why)),
            }
        }
        let none = || Failure::usage(format!("{} has no address", self.server));
        Err(failed.map_or_else(none, |why| no_handshake(why, keyring)))
    }
}

fn is_silence(why: &Error) -> bool {
    why.call_failed().is_some_and(|why| why.kind() == Kind::Unreachable)
}

/// Returns the failure of a handshake. Its hint is what this end's reason says at the end. A server does not
/// tell its reason.
fn no_handshake(why: Error, keyring: &Keyring) -> Failure {
    let why = CallFailed::from(why);
    let reason = why.detail().contains("expected ").then(|| why.detail().to_owned());
    let advice = reason.and_then(|reason| Some(reason.rsplit_once("; ")?.1.to_owned()));
    let own = keyring.identity().public();
    match (why.kind(), advice) {
        (_, Some(advice)) => Failure::from(why).in_place_of_hint(advice),
        (Kind::NotPermitted, None) => Failure::from(why).and("the server did not say why").in_place_of_hint(
            format!(
                "the server accepts {own} only by a line of its authorized_keys, or by a grant of an authority \
                 that it trusts (`farcall keys show` here, `farcall keys check-files` there)"
            ),
        ),
        (_, None) => Failure::from(why),
    }
}

fn detail(why: Error) -> String {
    CallFailed::from(why).detail().to_owned()
}

/// Asks a server what this end may do with a name, by what changes nothing.
fn rights(runtime: &Runtime, url: &str) -> Outcome<Rights> {
    let verdict = |answer: Result<(), Error>| match answer {
        Ok(()) => Ok(None),
        Err(why) => match why.call_failed().map(CallFailed::kind) {
            Some(Kind::NotPermitted | Kind::NoSuchProcedure) => Ok(Some(detail(why))),
            _ => Err(Failure::from(why)),
        },
    };
    let health = verdict(Pinger::import(runtime, url).and_then(|pinger| pinger.ping().map(drop)))?;
    let mut procedures = Vec::new();
    let description = verdict(dynamic::describe(runtime, url).map(|described| {
        let all = described.interface.procedures.iter();
        procedures = all.map(|procedure| procedure.name.to_string()).collect();
    }))?;
    Ok(Rights { health, description, procedures })
}

/// Returns what this end shows for a name.
fn shown(keyring: &Keyring, name: Option<&str>) -> Vec<Value> {
    let wanted = name.and_then(|name| name.parse::<Scope>().ok());
    let (type_name, instance) = match &wanted {
        Some(scope) => (scope.type_name().exact(), scope.instance().exact()),
        None => (None, None),
    };
    let fits = |grant: &&farcall_keys::Grant| {
        let terms = grant.terms();
        terms.rights.has(Right::Import)
            && terms.scope.meets(type_name.unwrap_or_default(), instance.unwrap_or_default())
    };
    keyring.grants().iter().filter(fits).map(describe_grant).collect()
}

fn level(answerer: &Answerer) -> &'static str {
    match answerer.level {
        Level::Authenticated => "authenticated",
        Level::Secure => "secure",
    }
}

fn to_json(name: Option<&str>, answerer: &Answerer, keyring: &Keyring, rights: Option<&Rights>) -> Value {
    let server = &answerer.server;
    let mut said = json!({
        "address": answerer.address.to_string(),
        "name": name,
        "key": server.key.to_string(),
        "fingerprint": server.key.fingerprint().to_string(),
        "principal": &*server.name,
        "authority": server.grant.map(|(authority, _)| authority.to_string()),
        "serial": server.grant.map(|(_, serial)| serial),
        "expires": server.expires,
        "level": level(answerer),
        "suite": answerer.suite.name(),
        "own_key": keyring.identity().public().to_string(),
        "own_grants": shown(keyring, name),
    });
    if let Some(Rights { health, description, procedures }) = rights {
        said["may"] = json!({
            "health": health.is_none(),
            "describe": description.is_none(),
            "refused": health.as_ref().or(description.as_ref()),
        });
        said["procedures"] = json!(procedures);
    }
    said
}

fn table(name: Option<&str>, answerer: &Answerer, keyring: &Keyring, rights: Option<&Rights>) -> String {
    let server = &answerer.server;
    let by = match (server.grant, server.expires) {
        (Some((authority, serial)), Some(expires)) => {
            format!("grant {serial} of {authority}, until {}", date(expires))
        }
        (Some((authority, serial)), None) => format!("grant {serial} of {authority}"),
        (None, _) => "a line of known_servers".to_owned(),
    };
    let what = name.map_or_else(String::new, |name| format!(" for {name}"));
    let mut page = format!("{} answers{what}\n", answerer.address);
    let mut line = |title: &str, text: &str| {
        let _ = writeln!(page, "{title:<12} {}", printable(text));
    };
    line("principal", &server.name);
    line("key", &server.key.to_string());
    line("fingerprint", &server.key.fingerprint().to_string());
    line("accepted by", &by);
    line("sealed", &format!("{}, {}", level(answerer), answerer.suite.name()));
    line("own key", &keyring.identity().public().to_string());
    for grant in shown(keyring, name) {
        let text = |field: &str| grant[field].as_str().unwrap_or_default().to_owned();
        line("own grant", &format!("{}, as {} for {}", grant["serial"], text("principal"), text("scope")));
    }
    if let Some(Rights { health, description, procedures }) = rights {
        let say = |verdict: &Verdict| verdict.clone().unwrap_or_else(|| "yes".to_owned());
        line("may ask", &format!("for its health: {}", say(health)));
        line("may ask", &format!("for its description: {}", say(description)));
        if !procedures.is_empty() {
            line("procedures", &procedures.join(", "));
        }
    }
    page
}
