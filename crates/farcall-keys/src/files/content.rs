//! What the key files of a directory say, line by line, so that a fault of one line leaves what others say.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use crate::fault::LineFault;
use crate::grant::Grant;
use crate::identity::Identity;
use crate::key::{PublicKey, SIGNATURE_BYTES};
use crate::keyring::{Keyring, older_list};
use crate::lines::{self, Authority, AuthorizedKey, GrantLine, KnownServer, ParseLine};
use crate::policy::{Policy, Rule};
use crate::revocation::RevocationList;

/// The files besides `identity`, in the order in which they are read.
pub(super) const FILES: [Part; 6] =
    [Part::Grants, Part::Authorities, Part::AuthorizedKeys, Part::KnownServers, Part::Revoked, Part::Policy];

/// The most faults of a file that are told.
const MAX_FAULTS: usize = 100;

/// A file besides `identity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Grants,
    Authorities,
    AuthorizedKeys,
    KnownServers,
    Revoked,
    Policy,
}

/// What a line of a key file says. Of a revocation list, its first line stands for all.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum KeyLine {
    /// A line of `grants`: what this end may show.
    Grant(Grant),
    /// A line of `authorities`: whose grants are believed.
    Authority(Authority),
    /// A line of `authorized_keys`: a client without a grant.
    AuthorizedKey(AuthorizedKey),
    /// A line of `known_servers`: a server without a grant.
    KnownServer(KnownServer),
    /// A list of `revoked`.
    Revocations(RevocationList),
    /// A line of `policy`.
    Rule(Rule),
}

/// Lines with their numbers.
pub(super) type Lines = Arc<Vec<(usize, KeyLine)>>;

/// What a file counts for.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    /// What is understood of the file as it is. `None` if there is no file.
    pub(super) present: Option<Lines>,
    /// What gives somebody something. `None` if there is no file.
    gives: Option<Lines>,
    /// What restricts that: the rules of a policy, or the lines of `known_servers` that only exclude others.
    restricts: Option<Lines>,
    /// What the file said when it had no fault the last time.
    sound: Option<Lines>,
}

/// What was found of a file.
pub(super) enum Found {
    Missing,
    /// The lines that are understood, and the faults of the others.
    Text(Lines, Vec<LineFault>),
    /// It cannot be read.
    Unread,
}

/// For each authority, its newest list.
pub(super) type Lists = BTreeMap<PublicKey, RevocationList>;

impl Part {
    pub(super) fn file_name(self) -> &'static str {
        match self {
            Part::Grants => "grants",
            Part::Authorities => "authorities",
            Part::AuthorizedKeys => "authorized_keys",
            Part::KnownServers => "known_servers",
            Part::Revoked => "revoked",
            Part::Policy => "policy",
        }
    }

    /// Reads a file. Adds what it says to `scratch`, which has what the files before it say, and so finds what
    /// is wrong with a line. Lists count also if `is_trusted` says so of their authorities.
    pub(super) fn read(
        self,
        content: &[u8],
        scratch: &mut Keyring,
        is_trusted: impl Fn(&PublicKey) -> bool,
    ) -> (Lines, Vec<LineFault>) {
        if self == Part::Policy {
            scratch.policy_mut();
        }
        let (mut understood, mut faults) = (Vec::new(), Vec::new());
        for line in self.lines(content) {
            let added = line.and_then(|(number, line)| {
                add(scratch, line.clone(), &is_trusted).map_err(|why| why.at(number))?;
                Ok((number, line))
            });
            match added {
                Ok(line) => understood.push(line),
                Err(why) if faults.len() < MAX_FAULTS => faults.push(why),
                Err(_) => {}
            }
        }
        (Arc::new(understood), faults)
    }

    fn lines(self, content: &[u8]) -> Box<dyn Iterator<Item = Result<(usize, KeyLine), LineFault>> + '_> {
        fn each<T: ParseLine + 'static>(
            content: &[u8],
            says: fn(T) -> KeyLine,
        ) -> Box<dyn Iterator<Item = Result<(usize, KeyLine), LineFault>> + '_> {
            Box::new(lines::parse(content).map(move |line| line.map(|(number, line)| (number, says(line)))))
        }
        match self {
            Part::Grants => each(content, |GrantLine(grant)| KeyLine::Grant(grant)),
            Part::Authorities => each(content, KeyLine::Authority),
            Part::AuthorizedKeys => each(content, KeyLine::AuthorizedKey),
            Part::KnownServers => each(content, KeyLine::KnownServer),
            Part::Policy => each(content, KeyLine::Rule),
            Part::Revoked => {
                let lists = lines::revocation_lists(content).into_iter();
                Box::new(lists.map(|list| list.map(|(number, list)| (number, KeyLine::Revocations(list)))))
            }
        }
    }
}

fn add(
    keyring: &mut Keyring,
    line: KeyLine,
    is_trusted: &impl Fn(&PublicKey) -> bool,
) -> Result<(), LineFault> {
    match line {
        KeyLine::Grant(grant) => keyring.add_grant(grant),
        KeyLine::Authority(line) => keyring.add_authority(line),
        KeyLine::AuthorizedKey(line) => keyring.add_authorized_key(line),
        KeyLine::KnownServer(line) => {
            keyring.add_known_server(line);
            Ok(())
        }
        KeyLine::Revocations(list) => {
            let is_trusted = is_trusted(&list.authority());
            keyring.add_revocations(list, is_trusted)
        }
        KeyLine::Rule(rule) => keyring.policy_mut().add(rule),
    }
}

impl Counted {
    /// Counts what was found now. A file that has no fault counts as it is. One that has some gives only what
    /// it also gave when it had none: what is gone is gone, what is not understood gives nothing, and what is
    /// new has to wait. One that cannot be read counts as before.
    pub(super) fn update(&mut self, part: Part, found: Found) {
        match found {
            Found::Unread => {}
            Found::Missing => *self = Counted::default(),
            Found::Text(lines, faults) if faults.is_empty() => {
                *self = Counted {
                    present: Some(lines.clone()),
                    gives: Some(lines.clone()),
                    restricts: None,
                    sound: Some(lines),
                };
            }
            Found::Text(present, _) => {
                let former = self.sound.clone();
                let (gives, restricts) = match part {
                    // Later rules decide about what earlier ones leave. So the whole former policy restricts.
                    Part::Policy => (present.clone(), former.clone()),
                    Part::KnownServers => {
                        let both = former.iter().chain([&present]).flat_map(|lines| lines.iter().cloned());
                        (common(&present, former.as_ref()), Some(Arc::new(both.collect())))
                    }
                    _ => (common(&present, former.as_ref()), None),
                };
                *self = Counted { present: Some(present), gives: Some(gives), restricts, sound: former };
            }
        }
    }

    /// Adds what the file gives, and what restricts that, to a keyring.
    pub(super) fn add_to(&self, part: Part, mut keyring: Keyring) -> Keyring {
        if part == Part::Policy && self.gives.is_some() {
            keyring.policy_mut();
        }
        for (_, line) in self.gives.iter().flat_map(|lines| lines.iter()) {
            // Lists are added apart. Other lines were added to a keyring before; a grant is for another key if
            // the identity has changed while `grants` cannot be read, and then nobody would believe it.
            if !matches!(line, KeyLine::Revocations(_)) {
                let _ = add(&mut keyring, line.clone(), &|_| false);
            }
        }
        let mut former = Policy::new();
        for (_, line) in self.restricts.iter().flat_map(|lines| lines.iter()) {
            match line {
                KeyLine::KnownServer(line) => keyring.add_pin(line.clone()),
                KeyLine::Rule(rule) => former.add(rule.clone()).unwrap_or_default(),
                _ => {}
            }
        }
        let is_first_and_faulty = self.gives.is_some() && self.sound.is_none();
        match part {
            // Before it, there was no policy.
            Part::Policy if is_first_and_faulty => keyring.with_restriction(None),
            Part::Policy if self.restricts.is_some() => keyring.with_restriction(Some(former)),
            _ => keyring,
        }
    }

    /// Returns whether the file has a line about this authority, or had one when it had no fault.
    pub(super) fn knows(&self, authority: &PublicKey) -> bool {
        let all = [&self.gives, &self.sound].into_iter().flatten().flat_map(|lines| lines.iter());
        all.into_iter().any(|(_, line)| matches!(line, KeyLine::Authority(line) if line.key == *authority))
    }
}

/// Returns the lines that both files have.
fn common(present: &Lines, former: Option<&Lines>) -> Lines {
    let former: HashSet<String> =
        former.into_iter().flat_map(|lines| lines.iter()).map(|(_, line)| line.meaning()).collect();
    Arc::new(present.iter().filter(|(_, line)| former.contains(&line.meaning())).cloned().collect())
}

/// Brings lists up to date with those that were found. Returns the faults: a list that is older than the one that
/// was known, or that has gone. The known one then stays.
pub(super) fn update_lists(
    known: &mut Lists,
    found: Option<&Lines>,
    is_trusted: impl Fn(&PublicKey) -> bool,
) -> Vec<LineFault> {
    type Version = (u64, [u8; SIGNATURE_BYTES]);
    known.retain(|authority, _| is_trusted(authority));
    let version = |list: &RevocationList| -> Version { (list.serial(), *list.signature()) };
    let before: BTreeMap<PublicKey, Version> =
        known.iter().map(|(authority, list)| (*authority, version(list))).collect();
    // Of several lists of an authority, the last one has the greatest serial.
    let mut new: BTreeMap<PublicKey, &RevocationList> = BTreeMap::new();
    for (_, line) in found.into_iter().flat_map(|lines| lines.iter()) {
        if let KeyLine::Revocations(list) = line {
            new.insert(list.authority(), list);
        }
    }
    let mut faults = Vec::new();
    for (authority, (serial, signature)) in before {
        let said = match new.get(&authority).map(|list| version(list)) {
            Some((found, _)) if found > serial => continue,
            Some(same) if same == (serial, signature) => continue,
            Some((found, _)) if found == serial => "another list with this serial".to_owned(),
            Some((found, _)) => format!("serial {found}"),
            None => "no list of this authority".to_owned(),
        };
        new.remove(&authority);
        faults.push(older_list(authority, serial, &said));
    }
    for (authority, list) in new {
        known.insert(authority, list.clone());
    }
    faults
}

impl KeyLine {
    /// Returns what the line says, without its comment.
    fn meaning(&self) -> String {
        let comment = String::new();
        match self {
            KeyLine::Grant(grant) => grant.to_text(),
            KeyLine::Authority(line) => Authority { comment, ..line.clone() }.to_string(),
            KeyLine::AuthorizedKey(line) => AuthorizedKey { comment, ..line.clone() }.to_string(),
            KeyLine::KnownServer(line) => KnownServer { comment, ..line.clone() }.to_string(),
            KeyLine::Revocations(list) => format!("{} {}", list.authority(), list.serial()),
            KeyLine::Rule(rule) => rule.to_string(),
        }
    }
}

/// Says what the line gives, in a sentence without its times.
impl fmt::Display for KeyLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |scope: &crate::name::Scope| match scope.to_string() {
            any if any == "*" => "every name".to_owned(),
            scope => scope,
        };
        match self {
            KeyLine::Grant(grant) => {
                let (terms, authority) = (grant.terms(), grant.authority());
                let (principal, rights, scope) = (&terms.principal, terms.rights, names(&terms.scope));
                write!(f, "this end may show that it is {principal} and may {rights} {scope}, by {authority}")
            }
            KeyLine::Authority(Authority { key, principals, .. }) if principals.is_empty() => {
                write!(f, "grants of {key} count, for every principal")
            }
            KeyLine::Authority(Authority { key, principals, .. }) => {
                let principals: Vec<_> = principals.iter().map(ToString::to_string).collect();
                write!(f, "grants of {key} count, for the principals {}", principals.join(", "))
            }
            KeyLine::AuthorizedKey(AuthorizedKey { key, principal, scope, .. }) => {
                write!(f, "{key} is {principal} and may import {}", names(scope))
            }
            KeyLine::KnownServer(KnownServer { scope, key, or_granted, .. }) => {
                let others = if *or_granted { "so may keys with a grant" } else { "no grant lets others" };
                write!(f, "{key} may answer for {}; {others}", names(scope))
            }
            KeyLine::Revocations(list) => {
                let (keys, grants) = (list.revoked().keys().count(), list.revoked().grants().len());
                let (authority, serial) = (list.authority(), list.serial());
                write!(f, "{authority} has revoked {keys} keys and {grants} grants, serial {serial}")
            }
            KeyLine::Rule(rule) => rule.fmt(f),
        }
    }
}

/// Reads the bytes after the first as the file that the first byte names.
pub(crate) fn fuzz(bytes: &[u8]) {
    let Some((kind, content)) = bytes.split_first() else { return };
    let Some(part) = FILES.get(usize::from(*kind) % (FILES.len() + 1)) else {
        let _ = lines::identity(content);
        return;
    };
    let scratch = || {
        let authority = Identity::from_entropy([1; 32]).public();
        Keyring::new(Identity::from_entropy([7; 32])).with_authority(authority)
    };
    let (whole, faults) = part.read(content, &mut scratch(), |_| false);
    for why in &faults {
        assert!(!why.to_string().contains('\n'), "a fault is one line");
    }
    // What a file with faults gives, a file without them has given.
    let mut counted = Counted::default();
    counted.update(*part, Found::Text(whole.clone(), Vec::new()));
    let (half, _) = part.read(&content[..content.len() / 2], &mut scratch(), |_| false);
    let fault = || vec![LineFault::new("", "", "")];
    counted.update(*part, Found::Text(half, fault()));
    if *part != Part::Policy {
        let meanings: HashSet<String> = whole.iter().map(|(_, line)| line.meaning()).collect();
        let gives = counted.gives.iter().flat_map(|lines| lines.iter());
        assert!(gives.into_iter().all(|(_, line)| meanings.contains(&line.meaning())), "it gives more");
    }
    counted.add_to(*part, scratch());
}
