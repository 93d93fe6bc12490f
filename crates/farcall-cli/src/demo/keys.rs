//! The keys of `farcall demo --secure`: directories of key files, which are made in the demo's own directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use farcall::key_files::PublicKey;

use crate::commands::keys::{make_directory, make_identity};
use crate::failure::{Failure, Outcome};

/// The setting that names a process's directory of key files.
pub const SETTING: &str = "FARCALL_KEYS";

/// The directories of the demo's keys: of the client, of someone whom no server knows, of the servers, and of
/// the server from which the client's key is taken away.
const CLIENT: &str = "alice";
pub const STRANGER: &str = "stranger";
const SERVERS: &str = "servers";
pub const VAULT: &str = "vault";

/// What the policy of that server lets the client call.
const POLICY: &str = "allow alice Vault echo,count,counted,hang\n";

/// Makes the keys in a directory, and has a command use those of the client.
pub fn set_keys(command: &mut Command, scratch: &Path) -> Outcome {
    let make = |name: &str| -> Outcome<PublicKey> {
        let directory = scratch.join(name);
        make_directory(&directory)?;
        Ok(make_identity(&directory.join("identity"))?.public())
    };
    let [client, _, servers, vault] = [make(CLIENT)?, make(STRANGER)?, make(SERVERS)?, make(VAULT)?];
    for end in [CLIENT, STRANGER] {
        write(&scratch.join(end), "known_servers", &format!("Vault {vault}\n* {servers}\n"))?;
    }
    for end in [SERVERS, VAULT] {
        write(&scratch.join(end), "authorized_keys", &format!("{client} {CLIENT}\n"))?;
    }
    write(&scratch.join(VAULT), "policy", POLICY)?;
    command.env(SETTING, scratch.join(CLIENT));
    Ok(())
}

/// Takes the client's key away from the server whose keys are in this directory.
pub fn take_away(directory: &Path) -> Outcome {
    write(directory, "authorized_keys", "# nobody\n")
}

/// Writes a key file as one that only its user can write. It takes the place of another one as a whole.
fn write(directory: &Path, file: &str, text: &str) -> Outcome {
    let mut new = tempfile::NamedTempFile::new_in(directory)?;
    std::io::Write::write_all(&mut new, text.as_bytes())?;
    new.persist(directory.join(file)).map_err(|why| Failure::from(why.error))?;
    Ok(())
}

/// Returns the directory of this client's key files, if the demonstration has keys.
pub fn own_keys() -> Option<PathBuf> {
    std::env::var_os(SETTING).map(PathBuf::from)
}

/// Returns the setting by which the demo's servers have keys, if the demonstration has any.
pub fn servers_setting() -> Option<(&'static str, PathBuf)> {
    Some((SETTING, own_keys()?.with_file_name(SERVERS)))
}
