//! Tests whose key files are read: owners, modes, links, the folders above, and volumes of Kubernetes. The users
//! and the mounts are real, so these tests need root.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use farcall_keys::KeyFiles;

use crate::common::{AUTHORITY, SERVER, identity, key};

/// A user and a group that no machine has, another user, and a group of the user's.
const USER: u32 = 41_234;
const OTHER_USER: u32 = 41_235;
const GROUP: u32 = 42_000;

/// A tree of folders in which every folder belongs to root, with mode 0755.
struct Tree(tempfile::TempDir);

impl Tree {
    /// Makes a tree, or says that the test is skipped.
    fn new(what: &str) -> Option<Tree> {
        let is_root = rustix_uid() == 0 && Command::new("setpriv").arg("--version").output().is_ok();
        if !is_root {
            let _ = writeln!(std::io::stderr(), "skipped: {what}: only root can make files of other users");
            return None;
        }
        let tree = Tree(tempfile::tempdir().unwrap());
        fs::set_permissions(tree.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Some(tree)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn folder(&self, name: &str, owner: u32, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        set(&path, owner, 0, mode);
        path
    }

    /// Makes a key folder of the user's.
    fn keys(&self, name: &str) -> PathBuf {
        let path = self.folder(name, USER, 0o700);
        write_keys(&path);
        set(&path.join("identity"), USER, 0, 0o600);
        set(&path.join("authorities"), USER, 0, 0o644);
        path
    }
}

fn rustix_uid() -> u32 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").map_or(u32::MAX, |found| found.uid())
}

fn set(path: &Path, owner: u32, group: u32, mode: u32) {
    chown(path, Some(owner), Some(group)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn write_keys(folder: &Path) {
    KeyFiles::write_identity(&folder.join("identity"), &identity(SERVER)).unwrap();
    fs::write(folder.join("authorities"), format!("{}\n", key(AUTHORITY))).unwrap();
}

const DIRECTORY: &str = "FARCALL_TEST_KEYS";

/// Opens the directory that the environment names, and prints the outcome: the other tests run this one as
/// another user.
#[test]
fn a_directory_that_the_environment_names_is_opened() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let outcome = match KeyFiles::open(directory) {
        Ok(_) => "good".to_owned(),
        Err(fault) => fault.to_string(),
    };
    println!("outcome: {outcome}");
}

/// Returns a command that opens a directory as a user.
fn opening(directory: &Path, user: u32, groups: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), "--regid=41999".to_owned()]);
    command.arg(match groups {
        "" => "--clear-groups".to_owned(),
        groups => format!("--groups={groups}"),
    });
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "owners::a_directory_that_the_environment_names_is_opened", "--nocapture"]);
    command.env(DIRECTORY, directory);
    command
}

#[track_caller]
fn outcome(mut command: Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let outcome = text.lines().find_map(|line| line.split_once("outcome: ")).map(|(_, outcome)| outcome);
    outcome.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr))).to_owned()
}

#[track_caller]
fn opened(directory: &Path) -> String {
    outcome(opening(directory, USER, ""))
}

#[test]
fn a_folder_of_the_user_below_folders_of_root_is_read() {
    let Some(tree) = Tree::new("owners of folders") else { return };
    let keys = tree.keys("home/keys");
    assert_eq!(opened(&keys), "good");
    // Root's folder of root's public files does, too, with an identity of the user's.
    set(&keys, 0, 0, 0o755);
    set(&keys.join("authorities"), 0, 0, 0o644);
    assert_eq!(opened(&keys), "good");
    // A folder above where everybody can make files, but only owners can rename them.
    tree.folder("home", 0, 0o1777);
    assert_eq!(opened(&keys), "good");
    // Links of the user's and of root's.
    for owner in [USER, 0] {
        let link = tree.path(&format!("link-{owner}"));
        symlink(&keys, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(owner), None).unwrap();
        assert_eq!(opened(&link), "good");
        assert_eq!(opened(&link.join("../keys/.")), "good", "a link's .. is above its target");
    }
}

#[test]
fn a_folder_that_others_could_replace_is_refused() {
    let Some(tree) = Tree::new("owners of folders") else { return };
    let keys = tree.keys("home/deep/keys");
    for (folder, owner, mode, said) in [
        ("home", 0, 0o777, "found mode 0777, with which others can change whom farcall trusts; `chmod go-w "),
        ("home/deep", 0, 0o775, "found mode 0775"),
        ("home/deep", USER, 0o1777, "found mode 1777"),
        ("home", OTHER_USER, 0o755, "found one of user 41235, who could change whom farcall trusts"),
        ("home/deep/keys", OTHER_USER, 0o755, "found one of user 41235"),
        ("home/deep/keys", USER, 0o770, "found mode 0770"),
    ] {
        tree.folder(folder, owner, mode);
        let outcome = opened(&keys);
        assert!(outcome.contains(said) && outcome.contains(&format!("{folder}: expected")), "{outcome}");
        tree.folder(folder, 0, 0o755);
    }
    tree.folder("home/deep/keys", USER, 0o700);
    assert_eq!(opened(&keys), "good");
}

#[test]
fn a_link_of_another_user_is_refused_wherever_it_stands() {
    let Some(tree) = Tree::new("links of other users") else { return };
    let keys = tree.keys("keys");
    tree.folder("common", 0, 0o1777);
    let theirs = tree.path("common/link");
    symlink(&keys, &theirs).unwrap();
    std::os::unix::fs::lchown(&theirs, Some(OTHER_USER), None).unwrap();
    let said = "link: expected a link of this user (41234) or of root; found one of user 41235, who could lead \
                farcall to other files; remove it, or name the folder to which it leads";
    assert!(opened(&theirs).ends_with(said), "{}", opened(&theirs));
    assert!(opened(&theirs.join("../keys")).ends_with(said));
    // A link of one's own to theirs is no better.
    let own = tree.path("own");
    symlink(&theirs, &own).unwrap();
    assert!(opened(&own).ends_with(said), "{}", opened(&own));
    // Nor is their link in the place of a file.
    let common = tree.folder("common/keys", 0, 0o1777);
    write_keys(&common);
    set(&common.join("identity"), USER, 0, 0o600);
    set(&common.join("authorities"), 0, 0, 0o644);
    assert_eq!(opened(&common), "good");
    symlink(keys.join("authorities"), common.join("known_servers")).unwrap();
    std::os::unix::fs::lchown(common.join("known_servers"), Some(OTHER_USER), None).unwrap();
    assert!(opened(&common).contains("known_servers: expected a link of this user"), "{}", opened(&common));
    fs::remove_file(common.join("known_servers")).unwrap();
    // A second name of a file is one that others can have made.
    fs::hard_link(tree.path("keys/authorities"), common.join("known_servers")).unwrap();
    assert!(opened(&common).contains("known_servers: expected a file with one name"), "{}", opened(&common));
    // A link to itself ends.
    symlink("loop", tree.path("loop")).unwrap();
    assert!(
        opened(&tree.path("loop")).contains("expected at most 40 links"),
        "{}",
        opened(&tree.path("loop"))
    );
}

/// Makes a volume as a kubelet does, in a mount namespace of its own, and opens it there.
fn in_volume(tree: &Tree, options: &Volume<'_>) -> Option<String> {
    let (source, mount) = (tree.path("source"), tree.folder("etc/farcall", 0, 0o755));
    if !source.exists() {
        fs::create_dir(&source).unwrap();
        write_keys(&source);
    }
    let Volume { mode, group, file_mode, mount: option, groups } = options;
    let script = format!(
        "mount -t tmpfs -o mode={mode},gid={group} tmpfs {m} && mkdir {m}/..2026_a && cp {s}/* {m}/..2026_a && \
         chgrp -R {group} {m}/..2026_a && chmod 2755 {m}/..2026_a && chmod {file_mode} {m}/..2026_a/* && \
         ln -s ..2026_a {m}/..data && ln -s ..data/identity {m}/identity && \
         ln -s ..data/authorities {m}/authorities && mount -o remount,{option} {m} && exec \"$@\"",
        m = mount.display(),
        s = source.display(),
    );
    let opening = opening(&mount, USER, groups);
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script, "sh"]);
    command.arg(opening.get_program()).args(opening.get_args()).env(DIRECTORY, &mount);
    let made =
        Command::new("unshare").args(["--mount", "mount", "-t", "tmpfs", "tmpfs"]).arg(&mount).status();
    if !made.is_ok_and(|status| status.success()) {
        let _ = writeln!(std::io::stderr(), "skipped: volumes of Kubernetes: this user cannot mount");
        return None;
    }
    Some(outcome(command))
}

struct Volume<'a> {
    mode: &'a str,
    group: u32,
    file_mode: &'a str,
    /// `ro` or `rw`.
    mount: &'a str,
    groups: &'a str,
}

#[test]
fn keys_of_a_kubernetes_secret_are_read_by_its_group_alone() {
    let Some(tree) = Tree::new("volumes of Kubernetes") else { return };
    let secret = Volume { mode: "3777", group: GROUP, file_mode: "0440", mount: "ro", groups: "42000" };
    let Some(good) = in_volume(&tree, &secret) else { return };
    assert_eq!(good, "good");
    // Read-only or sticky: one of the two is enough.
    for (mode, mount) in [("3777", "rw"), ("1777", "ro"), ("0777", "ro"), ("0755", "ro")] {
        let volume = Volume { mode, mount, ..secret };
        assert_eq!(in_volume(&tree, &volume).unwrap(), "good", "{mode} {mount}");
    }
    for (mode, mount) in [("0777", "rw"), ("0775", "rw"), ("2775", "rw")] {
        let refused = in_volume(&tree, &Volume { mode, mount, ..secret }).unwrap();
        assert!(
            refused.contains("with which others can change whom farcall trusts"),
            "{mode} {mount}: {refused}"
        );
    }
    // The key itself: others must not read it, and nobody but root write it.
    for file_mode in ["0444", "0644", "0460", "0660", "0441"] {
        let refused = in_volume(&tree, &Volume { file_mode, ..secret }).unwrap();
        assert!(refused.contains("expected a private key that root or a group of this user alone can read"));
        assert!(refused.contains("defaultMode and fsGroup"), "{file_mode}: {refused}");
    }
    // A process that is not in the group cannot read it at all; one that can, because it has the capability or
    // another access list lets it, is refused.
    let refused = in_volume(&tree, &Volume { groups: "", ..secret }).unwrap();
    assert!(refused.contains("ermission denied") || refused.contains("for group 42000"), "{refused}");
    // In an ordinary folder root's key is not the user's.
    let folder = tree.folder("etc/plain", 0, 0o755);
    write_keys(&folder);
    set(&folder.join("identity"), 0, GROUP, 0o440);
    let refused = outcome(opening(&folder, USER, "42000"));
    assert!(refused.contains("identity: expected a file of this user (41234)"), "{refused}");
}
