//! `farcall names`: lists, watches, adds and removes the entries of the registry.

use std::collections::BTreeMap;
use std::io::{IsTerminal, stdout};
use std::thread;
use std::time::Duration;

use clap::Args;
use farcall::Runtime;
use farcall::names::{Address, Entry, Error, Label, Name};
use serde_json::{Value, json};

use crate::failure::{Failure, Outcome};
use crate::output::{Output, remark};
use crate::remote::runtime;

/// List the names that are exported, as the registry has them
///
/// The registry is the one that FARCALL_REGISTRY names, or else a file that the processes of this user share.
#[derive(Debug, Args)]
pub struct Names {
    /// List only the names of this type
    #[arg(value_name = "TYPE")]
    type_name: Option<String>,

    /// Go on, and print each entry that comes (+) or goes (-)
    #[arg(long, conflicts_with = "remove")]
    watch: bool,

    /// Remove the entry TYPE/INSTANCE, if its process is dead or none owns it
    #[arg(long, value_name = "NAME", conflicts_with = "type_name")]
    remove: Option<String>,

    /// Add an entry TYPE/INSTANCE that stays until it is removed, for a server that exports this name and
    /// cannot publish its own
    #[arg(long, value_name = "NAME", requires = "at", conflicts_with_all = ["type_name", "watch", "remove"])]
    add: Option<String>,

    /// The addresses of the added entry, as udp://10.0.0.7:7000, with commas between them, the one to try
    /// first before the others
    #[arg(long, value_name = "ADDRESS", requires = "add", value_delimiter = ',')]
    at: Vec<String>,
}

/// How often a watch looks whether the registry has changed. A look at a registry in etcd asks nobody.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// After this many looks a watch reads the entries even if the registry has not changed: when a process dies,
/// the registry in a file changes only with its next writer.
const LOOKS_PER_READING: u32 = 20;

impl Names {
    pub fn run(&self, output: &Output) -> Outcome {
        let runtime = runtime()?;
        if let Some(name) = &self.remove {
            return remove(&runtime, name);
        }
        if let Some(name) = &self.add {
            return add(&runtime, name, &self.at);
        }
        // A change after this is noticed.
        let version = if self.watch { runtime.registry().version()? } else { 0 };
        let entries = self.entries(&runtime)?;
        if entries.is_empty() && !output.is_json() && stdout().is_terminal() {
            let what = self.type_name.as_deref().unwrap_or("anything");
            remark(&format!("nobody exports {what} in {}", place()));
        }
        let width = entries.iter().map(|entry| entry.name().len()).max().unwrap_or(0);
        for entry in &entries {
            output.line(|| describe(entry), || as_text(entry, width))?;
        }
        if self.watch { self.watch(&runtime, output, (version, entries)) } else { Ok(()) }
    }

    fn entries(&self, runtime: &Runtime) -> Result<Vec<Entry>, Failure> {
        let Some(name) = &self.type_name else { return Ok(runtime.registry().list()?.entries) };
        let name = name.parse().map_err(|why: farcall::names::NameError| Failure::usage(why.to_string()))?;
        Ok(runtime.registry().instances(&name)?)
    }

    /// Prints changes until the reader of the output has closed it.
    fn watch(&self, runtime: &Runtime, output: &Output, seen: (u64, Vec<Entry>)) -> Outcome {
        let by_name = |entries: Vec<Entry>| -> BTreeMap<String, Entry> {
            entries.into_iter().map(|entry| (entry.name(), entry)).collect()
        };
        let (mut version, mut known, mut looks, mut away) = (seen.0, by_name(seen.1), 0_u32, false);
        loop {
            thread::sleep(LOOK_EVERY);
            let latest = match runtime.registry().version() {
                Ok(latest) => latest,
                // It may come back; a group that is followed goes on, too.
                Err(why) => {
                    if !std::mem::replace(&mut away, true) {
                        remark(&format!("farcall: {why}"));
                    }
                    continue;
                }
            };
            away = false;
            looks = looks.wrapping_add(1);
            if latest == version && !looks.is_multiple_of(LOOKS_PER_READING) {
                continue;
            }
            let Ok(entries) = self.entries(runtime) else { continue };
            let now = by_name(entries);
            for (gone, entry) in known.iter().filter(|(name, entry)| now.get(*name) != Some(entry)) {
                output.line(|| change("gone", entry), || format!("- {gone}"))?;
            }
            for entry in now.iter().filter(|(name, entry)| known.get(*name) != Some(entry)).map(|new| new.1) {
                output.line(|| change("new", entry), || format!("+ {}", as_text(entry, 0)))?;
            }
            (version, known) = (latest, now);
        }
    }
}

/// Adds an entry that no process owns.
fn add(runtime: &Runtime, name: &str, addresses: &[String]) -> Outcome {
    let (type_name, instance) = labels(name)?;
    let address = |text: &String| {
        let wrong = || Failure::usage(format!("{text:?} is not a numeric address, as udp://10.0.0.7:7000"));
        text.parse::<Address>().map_err(|_| wrong())
    };
    let mut addresses = addresses.iter().map(address);
    let first = addresses.next().unwrap_or_else(|| Err(Failure::usage("--at has no address")))?;
    let mut entry = Entry::new(type_name, instance, first, 0);
    entry.other_addresses = addresses.collect::<Result<_, _>>()?;
    Ok(runtime.registry().add(&entry)?)
}

/// Removes an entry.
fn remove(runtime: &Runtime, name: &str) -> Outcome {
    let (type_name, instance) = labels(name)?;
    match runtime.registry().withdraw(&type_name, &instance) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Failure::new(format!("the registry has no entry {name}"))),
        Err(Error::Taken { owner, address, .. }) => {
            let why = format!("{owner} exports {name} at {address}");
            Err(Failure::new(why).hint("an entry goes when its process ends; stop that process"))
        }
        Err(why) => Err(why.into()),
    }
}

/// Returns the place of the registry, for people.
fn place() -> String {
    let place = std::env::var("FARCALL_REGISTRY").ok().filter(|place| !place.is_empty());
    place.unwrap_or_else(|| "the registry of this user (FARCALL_REGISTRY is not set)".to_owned())
}

/// Returns the type and the instance of an entry's name.
fn labels(name: &str) -> Result<(Label, Label), Failure> {
    match name.parse() {
        Ok(Name::Instance { type_name, instance }) => Ok((type_name, instance)),
        Ok(_) => Err(Failure::usage(format!("{name} is not a name as TYPE/INSTANCE"))),
        Err(why) => Err(Failure::usage(why.to_string())),
    }
}

fn as_text(entry: &Entry, width: usize) -> String {
    let addresses: Vec<String> = entry.addresses().map(ToString::to_string).collect();
    format!("{:width$}  {}  {}", entry.name(), addresses.join(","), entry.owner)
}

/// Describes a change as a program reads it.
fn change(what: &str, entry: &Entry) -> Value {
    let mut described = describe(entry);
    described["change"] = what.into();
    described
}

fn describe(entry: &Entry) -> Value {
    json!({
        "name": entry.name(),
        "type": entry.type_name.as_str(),
        "instance": entry.instance.as_str(),
        "address": entry.address.to_string(),
        "addresses": entry.addresses().map(ToString::to_string).collect::<Vec<_>>(),
        "url": format!("{}/{}", entry.address, entry.asked_name()),
        "export": format!("{:016x}", entry.export),
        "procedures": entry.fingerprints.len(),
        "owner": entry.owner.to_string(),
    })
}
