//! A secret that all processes of a user on one machine share, and that no other user can read.
//!
//! By it a server at a loopback address knows that a client belongs to its own user
//! (`docs/protocol.md`, section 4.5). Where the secret stands does not depend on the registry in use.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::directory::{self, Directory};
use crate::{Error, Result};

/// The name of the secret's file.
const NAME: &str = "user-secret";

/// The bytes of a secret.
const BYTES: usize = 16;

/// The longest time that a process waits until no other one writes in the folder.
const TURN_PATIENCE: Duration = Duration::from_secs(10);

/// Returns the secrets of the user that this process runs as, at least one. There may be several, because
/// processes of one user can have different environments: the folders are `$XDG_RUNTIME_DIR/farcall` if that
/// variable holds an absolute path, `/run/user/UID/farcall` and `/tmp/farcall-UID`; on systems other than
/// Unix the folder `farcall` of the user's local application data. If no folder has a secret, one is made in
/// the first of them that can be used; `random` fills it.
///
/// # Errors
/// There is no secret, and none can be made: why not in the first folder.
pub fn user_secrets(random: impl FnOnce(&mut [u8; BYTES])) -> Result<Vec<[u8; BYTES]>> {
    secrets_in(&directory::all_of_user(), random)
}

fn secrets_in(folders: &[PathBuf], random: impl FnOnce(&mut [u8; BYTES])) -> Result<Vec<[u8; BYTES]>> {
    // A folder that cannot be trusted, because another user has made it, must not keep the others from use.
    let found = folders.iter().filter_map(|folder| Directory::open(folder).ok()??.secret().ok()?);
    let found: Vec<_> = found.collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let (mut secret, mut failed) = ([0; BYTES], None);
    random(&mut secret);
    for folder in folders {
        match make(folder, &secret) {
            Ok(secret) => return Ok(vec![secret]),
            Err(why) => failed = failed.or(Some(why)),
        }
    }
    Err(failed.unwrap_or_else(|| missing(Path::new(NAME))))
}

/// Makes the secret in a folder, completely or not at all. Returns the one that another process has made
/// meanwhile, if one has.
fn make(folder: &Path, secret: &[u8; BYTES]) -> Result<[u8; BYTES]> {
    let directory = Directory::create(folder)?;
    let _turn = directory.turn(TURN_PATIENCE)?;
    match directory.secret()? {
        Some(made) => Ok(made),
        None => directory.replace(NAME, secret).map(|()| *secret),
    }
}

impl Directory {
    /// Reads the secret, if there is one.
    fn secret(&self) -> Result<Option<[u8; BYTES]>> {
        let Some(bytes) = self.read_private(NAME, BYTES)? else { return Ok(None) };
        bytes.try_into().map(Some).map_err(|_| missing(&self.path().join(NAME)))
    }
}

fn missing(path: &Path) -> Error {
    let why = format!("a secret of {BYTES} bytes was expected; remove the file, and start the servers again");
    Error::Corrupt { path: path.to_owned(), line: 1, why }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    const NO_CHANCE: fn(&mut [u8; BYTES]) = |_| panic!("there is a secret already");

    fn filled(byte: u8) -> impl FnOnce(&mut [u8; BYTES]) {
        move |secret| *secret = [byte; BYTES]
    }

    #[test]
    fn the_first_process_makes_the_secret_and_the_others_find_it() {
        let place = tempfile::tempdir().unwrap();
        let folders = ["first", "second"].map(|name| place.path().join(name));
        assert_eq!(secrets_in(&folders, filled(1)).unwrap(), [[1; BYTES]]);
        assert_eq!(secrets_in(&folders, NO_CHANCE).unwrap(), [[1; BYTES]]);
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(folders[0].clone()), mode(folders[0].join(NAME))), (0o700, 0o600));
        assert!(!folders[1].exists());
        // A process of another environment has made one elsewhere.
        assert_eq!(secrets_in(&folders[1..], filled(2)).unwrap(), [[2; BYTES]]);
        assert_eq!(secrets_in(&folders, NO_CHANCE).unwrap(), [[1; BYTES], [2; BYTES]]);
    }

    #[test]
    fn a_folder_or_file_that_others_may_have_made_is_passed_over() {
        let place = tempfile::tempdir().unwrap();
        let folders = ["shared", "linked", "absent/below", "private"].map(|name| place.path().join(name));
        fs::create_dir(&folders[0]).unwrap();
        fs::set_permissions(&folders[0], fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(folders[0].join(NAME), [9; BYTES]).unwrap();
        symlink(place.path(), &folders[1]).unwrap();
        assert_eq!(secrets_in(&folders, filled(1)).unwrap(), [[1; BYTES]]);
        assert!(folders[3].join(NAME).is_file());
        let why = secrets_in(&folders[..3], filled(1)).unwrap_err().to_string();
        assert!(why.contains("shared") && why.contains("cannot be trusted"), "{why}");

        fs::set_permissions(folders[3].join(NAME), fs::Permissions::from_mode(0o644)).unwrap();
        let why = Directory::open(&folders[3]).unwrap().unwrap().secret().unwrap_err().to_string();
        assert!(why.ends_with("its mode 0644 lets other users read it; it must be 0600"), "{why}");
        let why = secrets_in(&folders[3..], filled(1)).unwrap_err().to_string();
        assert!(why.contains(NAME) && why.contains("cannot be trusted"), "{why}");
        fs::set_permissions(folders[3].join(NAME), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(folders[3].join(NAME), b"short").unwrap();
        let why = secrets_in(&folders[3..], filled(1)).unwrap_err().to_string();
        assert!(why.contains("16 bytes"), "{why}");
    }

    #[test]
    fn processes_that_begin_together_agree_on_one_secret() {
        let place = tempfile::tempdir().unwrap();
        let folders = [place.path().join("folder")];
        let of = |byte: u8| secrets_in(&folders, filled(byte)).unwrap();
        let found: Vec<_> = std::thread::scope(|scope| {
            let started: Vec<_> = (1..=8).map(|byte| scope.spawn(move || of(byte))).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(found.iter().all(|secrets| secrets.len() == 1 && secrets[0] == found[0][0]), "{found:?}");
    }
}
