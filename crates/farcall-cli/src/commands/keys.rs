//! `farcall keys`: makes and shows identities, signs and revokes grants, enrols machines, checks key files
//! and servers.

#[cfg(feature = "x509")]
mod admit;
mod authority;
#[cfg(feature = "x509")]
mod certificates;
#[cfg(feature = "secure")]
mod check;
mod check_files;
mod enrol;
mod enrolment;
mod grant;
mod invite;
mod make;
mod revoke;
mod show;

use std::env;
use std::fs::DirBuilder;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand, ValueHint};
use farcall_keys::{Fault, Identity, KeyFiles, KeyLine, PublicKey};
use serde_json::{Value, json};

#[cfg(not(all(feature = "secure", feature = "x509")))]
use super::lacking::Lacking;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::text::timestamp;

/// Make keys, sign and revoke grants, and show whom this end trusts
///
/// An end is known by its public key, which the file `identity` of a directory goes with. The other files of
/// the directory say what it may show (`grants`), whom it trusts (`authorities`, `authorized_keys`,
/// `known_servers`, `revoked`), and who may do what (`policy`).
#[derive(Debug, Args)]
#[command(after_long_help = AFTER)]
pub struct Keys {
    #[command(subcommand)]
    action: Action,
}

const AFTER: &str = "\
Environment:
  FARCALL_KEYS            the directory of key files [default: ~/.config/farcall]

Files, in which # begins a comment:
  identity         the private key, for the user alone: mode 0600
  grants           GRANT
  authorities      KEY [principals=PRINCIPAL,...]
  authorized_keys  KEY PRINCIPAL [type=TYPE] [instance=INSTANCE]
  known_servers    TYPE[/INSTANCE] KEY [or-granted], or * in place of the name
  revoked          what `farcall keys revoke` writes
  policy           allow|deny PRINCIPAL TYPE[/INSTANCE] [PROCEDURE,...]

Examples:
  farcall keys make              this end's identity
  farcall keys authority ca.key  an authority, whose grants others believe
  farcall keys grant --authority ca.key --key KEY --principal alice \\
      --import Store --days 90 >>grants
  farcall keys invite --authority ca.key --at 10.0.0.7:7070 \\
      --principal alice --import Store --days 90
  farcall keys enrol TOKEN       on the new machine, within ten minutes
  farcall keys revoke --authority ca.key --list revoked --serial 5117218912
  farcall keys show              whom this end trusts
  farcall keys check 10.0.0.7:7000 Store/main
                                 who answers there, and what it permits";

#[derive(Debug, Subcommand)]
enum Action {
    Make(make::Make),
    Show(show::Show),
    Authority(authority::Authority),
    Grant(grant::Grant),
    Invite(invite::Invite),
    #[cfg(feature = "x509")]
    Admit(admit::Admit),
    /// Enrol machines by their certificates (not in this build, which lacks the feature `x509`)
    #[cfg(not(feature = "x509"))]
    Admit(Lacking),
    Enrol(enrol::Enrol),
    Revoke(revoke::Revoke),
    CheckFiles(check_files::CheckFiles),
    #[cfg(feature = "secure")]
    Check(check::Check),
    /// Ask a server who it is (not in this build, which lacks the feature `secure`)
    #[cfg(not(feature = "secure"))]
    Check(Lacking),
}

/// The directory of key files.
#[derive(Debug, Args)]
struct Directory {
    /// The directory of key files [default: FARCALL_KEYS, or ~/.config/farcall]
    #[arg(long = "dir", value_name = "DIR", value_hint = ValueHint::DirPath)]
    path: Option<PathBuf>,
}

impl Keys {
    pub fn run(&self, output: &Output) -> Outcome {
        match &self.action {
            Action::Make(command) => command.run(output),
            Action::Show(command) => command.run(output),
            Action::Authority(command) => command.run(output),
            Action::Grant(command) => command.run(output),
            Action::Invite(command) => command.run(output),
            #[cfg(feature = "x509")]
            Action::Admit(command) => command.run(output),
            #[cfg(not(feature = "x509"))]
            Action::Admit(command) => command.refuse("keys admit", "x509"),
            Action::Enrol(command) => command.run(output),
            Action::Revoke(command) => command.run(output),
            Action::CheckFiles(command) => command.run(output),
            #[cfg(feature = "secure")]
            Action::Check(command) => command.run(output),
            #[cfg(not(feature = "secure"))]
            Action::Check(command) => command.refuse("keys check", "secure"),
        }
    }
}

impl Directory {
    fn path(&self) -> Outcome<PathBuf> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        self.path
            .clone()
            .or_else(|| set("FARCALL_KEYS"))
            .or_else(|| Some(set("HOME")?.join(".config/farcall")))
            .ok_or_else(|| {
                Failure::new("no directory of key files: neither FARCALL_KEYS nor HOME is set")
                    .hint("name the directory: --dir DIR")
            })
    }

    /// Makes the directory if there is none, and reads the identity in it, or makes one.
    fn prepare(&self) -> Outcome<(PathBuf, Identity)> {
        let directory = self.path()?;
        make_directory(&directory)?;
        let path = directory.join("identity");
        let identity = match path.exists() {
            true => KeyFiles::read_identity(&path).map_err(faulty)?,
            false => make_identity(&path)?,
        };
        Ok((directory, identity))
    }
}

/// Returns the failure of a key file. What to do becomes the hint.
fn faulty(why: Fault) -> Failure {
    let text = why.to_string();
    let message = text.strip_suffix(why.advice()).and_then(|text| text.strip_suffix("; ")).unwrap_or(&text);
    Failure::new(message).hint(why.advice())
}

/// Checks that this end's own files let an authority name a principal. Its grants would be worthless here
/// otherwise, and the limit stands until somebody changes it.
fn check_limit(directory: &Path, authority: &PublicKey, principal: &str) -> Outcome {
    let (files, _) = KeyFiles::inspect(directory);
    let mut lines = files.lines();
    let limited = |(_, _, line): &(_, _, &KeyLine)| matches!(line, KeyLine::Authority(line) if line.key == *authority && !line.may_name(principal));
    match lines.find(limited) {
        None => Ok(()),
        Some((file, number, _)) => {
            let message = format!("the authority may not name {principal:?} here");
            Err(Failure::new(message).about(format!("{file}, line {number}")).hint(
                "widen principals= in this line if the authority may name this principal, and enrol again",
            ))
        }
    }
}

/// Makes a failure of a message of the form EXPECTED; FOUND; ADVICE. The advice becomes the hint.
fn expected_found(why: &dyn std::fmt::Display) -> Failure {
    let text = why.to_string();
    match text.rsplit_once("; ") {
        Some((message, advice)) => Failure::new(message).hint(advice),
        None => Failure::new(text),
    }
}

/// Makes a directory for key files, which only its user can enter, if there is none.
pub fn make_directory(path: &Path) -> Outcome {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|why| Failure::new(why.to_string()).about(path.display()))
}

/// Makes an identity of the operating system's entropy, and writes it to a new file.
pub fn make_identity(path: &Path) -> Outcome<Identity> {
    let mut entropy = [0; 32];
    getrandom::fill(&mut entropy).map_err(no_entropy)?;
    let identity = Identity::from_entropy(entropy);
    KeyFiles::write_identity(path, &identity).map_err(faulty)?;
    Ok(identity)
}

/// Returns the number of a new grant.
fn new_serial() -> Outcome<u64> {
    /// So many bits that every reader of JSON knows them exactly.
    const SERIAL_BITS: u32 = 53;
    Ok(getrandom::u64().map_err(no_entropy)? >> (u64::BITS - SERIAL_BITS))
}

fn no_entropy(why: getrandom::Error) -> Failure {
    Failure::new(format!("the operating system gives no entropy: {why}"))
}

/// Returns the time in Unix seconds.
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns a time in Unix seconds for people.
fn date(seconds: u64) -> String {
    match SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds)) {
        Some(time) => timestamp(time),
        None => format!("{seconds} s after 1970"),
    }
}

/// Returns what a line of a key file gives, in a sentence for people.
fn gives(line: &KeyLine) -> String {
    match line {
        KeyLine::Grant(grant) => format!("{line}, until {}", date(grant.terms().expires)),
        KeyLine::Revocations(list) => {
            format!("{line}, good until {}", date(list.issued().saturating_add(list.greatest_age())))
        }
        line => line.to_string(),
    }
}

/// Describes what each line of the key files gives, as a program reads it.
fn describe_lines(files: &KeyFiles) -> Vec<Value> {
    let describe = |(file, line, says): (&str, usize, &KeyLine)| json!({ "file": file, "line": line, "gives": gives(says) });
    files.lines().map(describe).collect()
}

/// Describes a grant as a program reads it.
fn describe_grant(grant: &farcall_keys::Grant) -> Value {
    let terms = grant.terms();
    json!({
        "authority": grant.authority().to_string(),
        "key": terms.key.to_string(),
        "principal": &**terms.principal,
        "rights": terms.rights.to_string().split(',').collect::<Vec<_>>(),
        "scope": terms.scope.to_string(),
        "serial": terms.serial,
        "expires": terms.expires,
    })
}
