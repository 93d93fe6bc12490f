//! Tests the registry in a file: which directories it trusts, which entries it keeps, and which owners it
//! considers dead.

use crate::common;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::common::{Scratch, entry, instances, label};
use farcall_names::{Distrust, Error, File, MAX_FILE, Registry, Result};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Asserts that every operation fails in the same way. Returns the message.
fn refused(registry: &File, expected: impl Fn(&Error) -> bool) -> String {
    let ty = label("FileAccess");
    let errors: [Result<()>; 6] = [
        registry.publish(&entry("new")).map(drop),
        registry.withdraw(&ty, &label("new")).map(drop),
        registry.lookup(&ty, &label("new")).map(drop),
        registry.instances(&ty).map(drop),
        registry.list().map(drop),
        registry.version().map(drop),
    ];
    let mut said = String::new();
    for error in errors {
        let error = error.expect_err("it was taken");
        assert!(expected(&error), "{error:?}");
        said = error.to_string();
    }
    said
}

fn untrusted(registry: &File, reason: Distrust) -> String {
    refused(registry, |e| matches!(e, Error::Untrusted { why, .. } if *why == reason))
}

#[test]
fn directory_and_files_are_closed_to_others() {
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    let registry = File::at(&directory);
    let _kept = registry.publish(&entry("ebbets")).unwrap();
    assert_eq!(mode(&directory), 0o700);
    // If a user may set the sticky bit, it protects the files from being deleted because of their age.
    let expected = if cfg!(target_os = "linux") { 0o1600 } else { 0o600 };
    for name in ["names", "lock", "next"] {
        assert_eq!(mode(&directory.join(name)) & (0o777 | expected), expected, "{name}");
    }
    assert!(!directory.join("names.new").exists());
}

#[test]
fn an_io_error_says_what_was_attempted_and_keeps_its_source() {
    let scratch = Scratch::new();
    let error = File::at(scratch.join("no/parent")).publish(&entry("ebbets")).unwrap_err();
    let says_what = matches!(&error, Error::Io { doing: "making", path, .. } if path.ends_with("no/parent"));
    assert!(says_what, "{error:?}");
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<std::io::Error>());
    assert_eq!(source.unwrap().kind(), std::io::ErrorKind::NotFound);
}

/// The boot, the namespace and the start time distinguish this process from others that had, or will have,
/// its number.
#[test]
#[cfg(target_os = "linux")]
fn the_current_owner_is_what_proc_says_of_this_process() {
    let proc = |path: &str| fs::read_to_string(format!("/proc/{path}"));
    let (Ok(boot), Ok(stat)) = (proc("sys/kernel/random/boot_id"), proc("self/stat")) else {
        return common::skip("there is no /proc here");
    };
    let here = farcall_names::Owner::current();
    let boot = boot.replace('-', "");
    assert_eq!((here.pid, here.boot), (std::process::id(), u64::from_str_radix(&boot[..16], 16).unwrap()));
    let namespace = fs::metadata("/proc/self/ns/pid").unwrap();
    assert_eq!(here.namespace, std::os::unix::fs::MetadataExt::ino(&namespace));
    // The name of this program contains no parenthesis.
    let (_, fields) = stat.split_once(") ").unwrap();
    assert_eq!(here.started.to_string(), fields.split(' ').nth(22 - 3).unwrap());
    assert!(here.started > 0);
}

#[test]
#[cfg(target_os = "linux")]
fn an_exclusive_entry_replaces_none_whose_owner_may_live() {
    let scratch = Scratch::new();
    let registry = File::at(scratch.join("registry"));
    let mut hidden = entry("ebbets");
    if hidden.owner.namespace == 0 {
        return common::skip("there is no /proc here");
    }
    (hidden.owner.pid, hidden.owner.namespace) = (hidden.owner.pid + 1, hidden.owner.namespace + 1);
    let _hidden = registry.publish(&hidden).unwrap();
    let refused = registry.publish_exclusively(&entry("ebbets")).unwrap_err();
    assert!(matches!(refused, Error::Taken { owner, .. } if owner == hidden.owner), "{refused:?}");
    let usual = registry.publish(&entry("ebbets")).unwrap();
    drop(usual);
    assert!(registry.publish_exclusively(&entry("ebbets")).is_ok());
}

#[test]
fn a_file_that_was_lost_begins_anew_with_greater_fences() {
    let scratch = Scratch::new();
    let registry = File::at(scratch.join("registry"));
    let fence = || registry.publish(&entry("ebbets")).unwrap().ownership().unwrap().fence().unwrap();
    let former = [fence(), fence(), fence()];
    fs::remove_dir_all(scratch.join("registry")).unwrap();
    assert!(fence() > former[2]);
}

#[test]
fn the_greatest_version_is_followed_by_no_lesser_one() {
    let scratch = Scratch::new();
    let registry = File::at(scratch.join("registry"));
    drop(registry.publish(&entry("ebbets")).unwrap());
    let at = |version: u64| {
        fs::write(scratch.join("registry/names"), format!("farcall-names 1 {version}\nend 0\n")).unwrap();
    };
    at(u64::MAX / 2);
    let full = registry.publish(&entry("ebbets")).unwrap_err();
    assert!(matches!(full, Error::Corrupt { line: 1, .. }), "{full:?}");
    assert_eq!(registry.list().unwrap().entries, []);
    at(u64::MAX);
    refused(&registry, |why| matches!(why, Error::Corrupt { line: 1, .. }));
}

#[test]
fn asking_makes_nothing() {
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    assert_eq!(File::at(&directory).list().unwrap().entries, []);
    assert!(!directory.exists());
}

#[test]
fn a_directory_that_others_can_enter_is_refused() {
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    fs::create_dir(&directory).unwrap();
    for open in [0o755, 0o710, 0o701, 0o1777, 0o720] {
        chmod(&directory, open);
        let said = untrusted(&File::at(&directory), Distrust::Mode(open));
        assert!(said.contains(&format!("{open:04o}")) && said.contains("registry"), "{said}");
    }
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 0, "something was made in it");
    chmod(&directory, 0o700);
    assert!(File::at(&directory).list().is_ok());
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    fs::create_dir(&directory).unwrap();
    chmod(&directory, 0o700);
    let other = rustix::process::geteuid().as_raw() + 1;
    if std::os::unix::fs::chown(&directory, Some(other), None).is_ok() {
        let said = untrusted(&File::at(&directory), Distrust::Owner(other));
        assert!(said.contains(&other.to_string()), "{said}");
        return;
    }
    // If the test lacks the privilege to give a directory away, it uses a directory of another user.
    let owner = std::os::unix::fs::MetadataExt::uid(&fs::metadata("/").unwrap());
    if owner == rustix::process::geteuid().as_raw() {
        return common::skip("no directory can be given to another user, and the root directory is ours");
    }
    untrusted(&File::at("/"), Distrust::Owner(owner));
}

#[test]
fn a_symbolic_link_in_the_directorys_place_is_refused() {
    let scratch = Scratch::new();
    let elsewhere = scratch.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    chmod(&elsewhere, 0o700);
    let directory = scratch.join("registry");
    symlink(&elsewhere, &directory).unwrap();
    untrusted(&File::at(&directory), Distrust::SymbolicLink);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);

    fs::remove_file(&directory).unwrap();
    symlink(scratch.join("nowhere"), &directory).unwrap();
    untrusted(&File::at(&directory), Distrust::SymbolicLink);
    assert!(!scratch.join("nowhere").exists());
}

#[test]
fn something_else_in_the_directorys_place_is_refused() {
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    fs::write(&directory, "").unwrap();
    untrusted(&File::at(&directory), Distrust::NotADirectory);
}

#[test]
fn links_in_the_files_places_are_refused_and_not_written_through() {
    for name in ["names", "lock", "next"] {
        let scratch = Scratch::new();
        let directory = scratch.join("registry");
        let registry = File::at(&directory);
        let kept = registry.publish(&entry("ebbets")).unwrap();
        fs::write(scratch.join("precious"), "precious").unwrap();
        fs::remove_file(directory.join(name)).unwrap();
        symlink(scratch.join("precious"), directory.join(name)).unwrap();

        let error = registry.publish(&entry("luther")).unwrap_err();
        assert!(matches!(error, Error::Untrusted { why: Distrust::SymbolicLink, .. }), "{error:?}");
        assert!(error.to_string().contains(name), "{error}");
        assert!(kept.withdraw().is_err());
        assert_eq!(fs::read_to_string(scratch.join("precious")).unwrap(), "precious");
    }
}

#[test]
fn a_link_in_the_new_files_place_is_removed_and_not_written_through() {
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    let registry = File::at(&directory);
    let _first = registry.publish(&entry("ebbets")).unwrap();
    fs::write(scratch.join("precious"), "precious").unwrap();
    symlink(scratch.join("precious"), directory.join("names.new")).unwrap();
    let _second = registry.publish(&entry("luther")).unwrap();
    assert_eq!(fs::read_to_string(scratch.join("precious")).unwrap(), "precious");
    assert_eq!(instances(&registry.list().unwrap().entries), ["ebbets", "luther"]);
}

#[test]
fn a_directory_in_the_files_place_is_refused() {
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    let registry = File::at(&directory);
    drop(registry.publish(&entry("ebbets")).unwrap());
    fs::remove_file(directory.join("names")).unwrap();
    fs::create_dir(directory.join("names")).unwrap();
    untrusted(&registry, Distrust::NotAFile);
}

#[test]
fn a_pipe_in_a_files_place_is_refused_without_blocking() {
    for name in ["names", "lock", "next"] {
        let scratch = Scratch::new();
        let directory = scratch.join("registry");
        let registry = File::at(&directory);
        drop(registry.publish(&entry("ebbets")).unwrap());
        fs::remove_file(directory.join(name)).unwrap();
        assert!(Command::new("mkfifo").arg(directory.join(name)).status().unwrap().success());
        if name == "names" {
            untrusted(&registry, Distrust::NotAFile);
        }
        let error = registry.publish(&entry("luther")).unwrap_err();
        assert!(matches!(error, Error::Untrusted { why: Distrust::NotAFile, .. }), "{error:?}");
    }
}

/// Every reader refuses a registry file that is too large, so no writer may write one. The entries have half
/// of it, so that the other half is left for changes.
#[test]
fn the_entries_of_a_registry_grow_to_half_of_the_largest_file_and_no_further() {
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    let registry = File::at(&directory);
    let _kept = registry.publish(&entry("ebbets")).unwrap();
    let names = directory.join("names");
    let written = fs::read_to_string(&names).unwrap();
    let (line, _) = written.lines().nth(1).unwrap().rsplit_once(" check=").unwrap();
    // A line is followed by " check=", 16 digits and a line feed.
    let bytes = |line: &str| line.len() + 24;
    let revision = format!("revision={}", registry.version().unwrap());
    let added = bytes(&line.replace(&revision, "revision=1000001").replace("ebbets", "luther"));

    // A file of format 1 has entries of this process until one more entry just fits, or is one byte too long.
    for more in [0, 1] {
        let (mut text, mut live, mut count) = ("farcall-names 1 1000000\n".to_owned(), 0, 0);
        let fingerprints: Vec<_> = (0..4096).map(|n| format!("{n}:{n:016x}:{n:016x}")).collect();
        let fingerprints = format!(" fingerprints={}", fingerprints.join(","));
        let mut add = |line: String| {
            (live, count) = (live + bytes(&line), count + 1);
            text += &line;
            text += "\n";
            (MAX_FILE / 2 - added).saturating_sub(live)
        };
        let named = |name: &str| line.replace("ebbets", name);
        let mut rest = add(line.to_owned());
        let mut n = 0;
        while rest > 2 * (bytes(line) + fingerprints.len()) {
            n += 1;
            rest = add(named(&format!("large{n:03}")) + &fingerprints);
        }
        let shortest = bytes(&named(""));
        while rest > 3 * shortest {
            n += 1;
            rest = add(named(&format!("{n:06}")));
        }
        let padding = rest + more - shortest - " proof=".len();
        let name = "x".repeat(2 - padding % 2);
        add(named(&name) + " proof=" + &"00".repeat((padding - name.len()) / 2));
        text += &format!("end {count}\n");
        fs::write(&names, &text).unwrap();
        let published = registry.publish(&entry("luther"));
        if more == 0 {
            assert_eq!(registry.list().unwrap().entries.len(), count + 1);
            drop(published.unwrap());
            continue;
        }
        let error = published.unwrap_err();
        let limit = MAX_FILE / 2;
        assert!(
            matches!(error, Error::TooLarge { size, limit: most, .. } if size == limit + 1 && most == limit)
        );
        assert!(fs::read_to_string(&names).unwrap() == text);
        // What makes the registry smaller is written.
        assert!(registry.withdraw(&label("FileAccess"), &label("large001")).unwrap());
        drop(registry.publish(&entry("luther")).unwrap());
    }
}

/// Programs of earlier versions of farcall have written it, and may still be alive.
#[test]
fn a_file_of_an_earlier_format_is_read_and_the_first_writer_replaces_it() {
    let scratch = Scratch::new();
    let registry = File::at(scratch.join("registry"));
    drop(registry.publish(&entry("new")).unwrap());
    let owner = farcall_names::Owner::current();
    let old = format!(
        "farcall-names 1 57\nFileAccess/old udp://127.0.0.1:7000 export=00000000000000ff \
         owner={},{},{:016x},{} revision=57\nend 1\n",
        owner.pid, owner.started, owner.boot, owner.namespace
    );
    let names = scratch.join("registry/names");
    fs::write(&names, &old).unwrap();
    assert_eq!(registry.version().unwrap(), 57);
    assert_eq!(instances(&registry.list().unwrap().entries), ["old"]);
    assert_eq!(fs::read_to_string(&names).unwrap(), old, "readers change nothing");
    let _new = registry.publish(&entry("new")).unwrap();
    assert_eq!(registry.version().unwrap(), 58);
    assert_eq!(instances(&File::at(scratch.join("registry")).list().unwrap().entries), ["new", "old"]);
    assert!(fs::read_to_string(&names).unwrap().starts_with("farcall-names 2 58 2 "));
}

#[test]
fn a_corrupt_file_is_named_by_line_and_kept() {
    let scratch = Scratch::new();
    let directory = scratch.join("registry");
    let registry = File::at(&directory);
    let kept = registry.publish(&entry("ebbets")).unwrap();
    let names = directory.join("names");
    let good = fs::read_to_string(&names).unwrap();

    let cut = good[..good.len() - 1].to_owned();
    let cases = [
        (String::new(), 1),
        ("rubbish\n".to_owned(), 1),
        (cut, 2),
        (good.replace("export=", "exports="), 2),
        (good.replacen(" 1 ", " 2 ", 1), 3),
        (good.replacen(" 1 ", " 0 ", 1) + "-FileAccess/ebbets\n", 3),
        (" ".repeat(MAX_FILE + 1), 1),
    ];
    for (text, at) in cases {
        fs::write(&names, &text).unwrap();
        let said = refused(&registry, |e| matches!(e, Error::Corrupt { line, .. } if *line == at));
        assert!(said.contains(names.to_str().unwrap()) && said.contains(&format!("line {at}")), "{said}");
        assert_eq!(fs::read_to_string(&names).unwrap(), text, "the content was not kept");
    }

    fs::write(&names, good.replace("farcall-names 2", "farcall-names 9")).unwrap();
    refused(&registry, |e| matches!(e, Error::Format { found, .. } if found == "9"));

    fs::write(&names, good).unwrap();
    assert!(kept.withdraw().unwrap(), "once mended it goes on");
}

#[test]
fn a_number_that_another_process_has_now_does_not_keep_an_entry_alive() {
    let here = farcall_names::Owner::current();
    if here.started == 0 {
        return common::skip("this system does not say when a process started");
    }
    let scratch = Scratch::new();
    let registry = File::at(scratch.join("registry"));
    let mut late = entry("late");
    late.owner.started -= 1;
    let late = registry.publish(&late).unwrap();
    let ty = label("FileAccess");
    assert_eq!(registry.lookup(&ty, &label("late")).unwrap(), None);
    assert_eq!(registry.instances(&ty).unwrap(), []);
    assert_eq!(registry.list().unwrap().entries, []);

    let names = scratch.join("registry/names");
    assert!(fs::read_to_string(&names).unwrap().contains("late"), "readers change nothing");
    let _kept = registry.publish(&entry("ebbets")).unwrap();
    assert!(fs::read_to_string(&names).unwrap().contains("\n-FileAccess/late "), "writers purge");
    assert!(!late.withdraw().unwrap());
}

#[test]
fn an_entry_of_another_boot_is_dead() {
    let scratch = Scratch::new();
    let registry = File::at(scratch.join("registry"));
    let mut before = entry("before");
    if before.owner.boot == 0 {
        return common::skip("this system does not tell its boots apart");
    }
    before.owner.boot ^= 1;
    let _dead = registry.publish(&before).unwrap();
    assert_eq!(registry.list().unwrap().entries, []);
}

#[test]
fn an_entry_of_another_namespace_is_listed_and_may_be_replaced() {
    let scratch = Scratch::new();
    let registry = File::at(scratch.join("registry"));
    let mut container = entry("ebbets");
    if container.owner.namespace == 0 {
        return common::skip("this system has no process namespaces");
    }
    container.owner.namespace += 1;
    container.owner.pid += 1;
    let first = registry.publish(&container).unwrap();
    assert_eq!(registry.list().unwrap().entries, [container]);
    let ours = entry("ebbets");
    let _second = registry.publish(&ours).unwrap();
    assert_eq!(registry.list().unwrap().entries, [ours]);
    assert!(!first.withdraw().unwrap());
}

#[test]
fn the_document_of_rules_says_who_may_export_and_import() {
    let scratch = Scratch::new();
    let registry = File::at(scratch.join("registry"));
    let _ebbets = registry.publish(&entry("ebbets")).unwrap();
    let _fenway = registry.publish(&entry("fenway")).unwrap();
    let program = std::env::current_exe().unwrap();
    let program = program.file_name().unwrap().to_str().unwrap();
    let rules = |rules: &str| fs::write(scratch.join("registry").join("acl"), rules).unwrap();
    let ty = label("FileAccess");
    let denied = |result: Result<()>, rule: &str| match result {
        Err(why @ Error::NotPermitted { .. }) => assert!(why.to_string().contains(rule), "{why}"),
        other => panic!("{other:?}"),
    };

    rules(&format!(
        "allow export FileAccess/new by {program}\nallow import FileAccess/e*\ndeny import FileAccess\n"
    ));
    drop(registry.publish(&entry("new")).unwrap());
    denied(registry.publish(&entry("other")).map(drop), "no rule lets");
    assert_eq!(instances(&registry.instances(&ty).unwrap()), ["ebbets"]);
    assert!(registry.lookup(&ty, &label("ebbets")).unwrap().is_some());
    denied(registry.lookup(&ty, &label("fenway")).map(drop), "line 3: deny import FileAccess");
    assert!(registry.lookup(&ty, &label("nobody")).unwrap().is_none());
    assert_eq!(registry.list().unwrap().entries.len(), 2);

    rules("allow export * by another\ndeny import *");
    denied(registry.publish(&entry("new")).map(drop), "no rule lets");
    denied(registry.instances(&ty).map(drop), "line 2");

    rules("allow import *\nallow nothing");
    for result in [registry.publish(&entry("new")).map(drop), registry.instances(&ty).map(drop)] {
        assert!(matches!(result, Err(Error::Corrupt { line: 2, .. })), "{result:?}");
    }
}
