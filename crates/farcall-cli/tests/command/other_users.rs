//! Tests what other users of the machine can do with a server without keys at a loopback address. The tests
//! act as the user `nobody`, so they need root.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Place, Said};

/// The command, where every user can execute it, and a folder that `nobody` may write.
struct Stranger {
    place: Place,
}

impl Stranger {
    /// Returns `None` and says so if this process cannot act as another user.
    fn new() -> Option<Stranger> {
        let acts = Command::new("setpriv").args(["--reuid=65534", "--clear-groups", "true"]).output();
        if !acts.is_ok_and(|said| said.status.success()) {
            let _ = writeln!(std::io::stderr(), "skipped: acting as another user needs root and setpriv");
            return None;
        }
        let place = Place::new();
        let folder = place.write("command/farcall", []);
        fs::copy(env!("CARGO_BIN_EXE_farcall"), &folder).unwrap();
        for path in [place.path(""), place.path("command"), folder] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::create_dir(place.path("runtime")).unwrap();
        std::os::unix::fs::chown(place.path("runtime"), Some(65534), Some(65534)).unwrap();
        Some(Stranger { place })
    }

    fn run(&self, arguments: &[&str]) -> Said {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(self.place.path("command/farcall")).args(arguments).current_dir("/");
        command.env_clear().env("XDG_RUNTIME_DIR", self.place.path("runtime"));
        Said::of(command.stdin(Stdio::null()).output().unwrap())
    }
}

const REFUSED: &str = "may be called by processes of its own user only";

#[test]
fn another_user_reads_no_file_through_a_server_without_keys_on_loopback() {
    let Some(stranger) = Stranger::new() else { return };
    let place = Place::new();
    let private = place.write("dir/private", "for root only\n");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600)).unwrap();
    let server = place.serve("dir", "FileAccess");
    let url = server.fact("url");

    let said = stranger.run(&["cat", "--from", &url, "private"]);
    assert_eq!((said.code, said.out.as_str()), (4, ""), "{said:?}");
    assert!(said.err.contains("not permitted") && said.err.contains(REFUSED), "{said:?}");
    assert!(said.err.contains("did not run"), "{said:?}");
    for arguments in [vec!["ls", "--from", &url], vec!["debug", &url], vec!["describe", &url]] {
        let said = stranger.run(&arguments);
        assert!(said.code != 0 && said.out.is_empty(), "{arguments:?}: {said:?}");
    }
    assert_eq!(place.run(&["cat", "--from", &url, "private"]).ok(), "for root only\n", "its own user may");
}

#[test]
fn another_user_plants_no_file_through_a_writable_server_without_keys_on_loopback() {
    let Some(stranger) = Stranger::new() else { return };
    let place = Place::new();
    place.write("dir/there", "");
    let server = place.start(&["--json", "serve", "dir", "--name", "FileAccess", "--writable"]);
    let url = server.fact("url");

    let said = stranger.run(&["put", "/etc/hostname", "planted", "--to", &url]);
    assert!(said.code != 0 && said.err.contains(REFUSED), "{said:?}");
    assert!(!place.path("dir/planted").exists());
    place.run(&["put", "dir/there", "mine", "--to", &url]).ok();
    assert_eq!(owner_of(&place.path("dir/mine")), 0, "its own user may");
}

#[test]
fn another_user_may_call_a_server_that_is_open() {
    let Some(stranger) = Stranger::new() else { return };
    let place = Place::new();
    place.write("dir/public", "for everybody\n");
    let server = place.start(&["--json", "serve", "dir", "--name", "FileAccess", "--open"]);
    assert_eq!(stranger.run(&["cat", "--from", &server.fact("url"), "public"]).ok(), "for everybody\n");
}

fn owner_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().uid()
}
