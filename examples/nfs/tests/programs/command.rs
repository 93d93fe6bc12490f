//! Tests the command next to a server of this project: its output, and copies in both directions.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use farcall_nfs::files::Files;
use farcall_nfs::protocol::mount::MountV3;
use farcall_nfs::protocol::nfs::NfsV3;
use farcall_nfs::{Export, Mounts};
use farcall_onc::Server;

fn serve(directory: &tempfile::TempDir) -> (Server, String) {
    let files = Arc::new(Files::open(directory.path()).unwrap());
    let builder = Server::builder().program::<dyn NfsV3>(Arc::new(Export::new(files.clone())));
    let builder = builder.program::<dyn MountV3>(Arc::new(Mounts::new(files, "/")));
    let server = builder.address("127.0.0.1:0".parse().unwrap()).start().unwrap();
    let url = format!("nfs://{}", server.tcp().unwrap());
    (server, url)
}

fn run(arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(env!("CARGO_BIN_EXE_farcall-nfs")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn names_do_nothing_to_the_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let names: [(&[u8], &str); 6] = [
        (b"plain name", "plain name"),
        (b"\x1b]0;title\x07\x1b[2J", r"\033]0;title\007\033[2J"),
        (b"two\nlines\tand\\", r"two\nlines\tand\\"),
        (b"no \xff\xfe text", r"no \377\376 text"),
        ("grün \u{85}".as_bytes(), "grün \\302\\205"),
        ("txt.\u{202e}exe".as_bytes(), "txt.\\342\\200\\256exe"),
    ];
    for (name, _) in names {
        fs::write(directory.path().join(OsStr::from_bytes(name)), "").unwrap();
    }
    let (_server, url) = serve(&directory);
    let said = String::from_utf8(run(&["ls", &url])).unwrap();
    assert_eq!(said.lines().count(), names.len(), "{said}");
    for (_, shown) in names {
        assert!(said.lines().any(|line| line == format!("- {:>12} {shown}", 0)), "{shown} in {said}");
    }
}

#[test]
fn a_file_is_copied_there_and_back() {
    let (directory, here) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_server, url) = serve(&directory);
    let content: Vec<u8> = (0..5_000_000_u32).map(|number| (number % 253) as u8).collect();
    let from = here.path().join("from");
    fs::write(&from, &content).unwrap();
    let url = format!("{url}/copy");
    assert_eq!(run(&["put", from.to_str().unwrap(), &url]), b"5000000 bytes\n");
    assert!(fs::read(directory.path().join("copy")).unwrap() == content);
    assert!(run(&["cat", &url]) == content);
}

#[test]
fn files_have_the_permissions_that_their_maker_wants() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = Command::new("sh")
        .args(["-c", "umask 077; exec \"$0\" serve \"$1\" --address 127.0.0.1:0"])
        .arg(env!("CARGO_BIN_EXE_farcall-nfs"))
        .arg(directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(served.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
    let url = said.split_whitespace().find_map(|word| word.strip_prefix("nfs://")).unwrap();
    let url = format!("nfs://{}/copy", url.trim_end_matches([',', '/']));
    let copied =
        Command::new(env!("CARGO_BIN_EXE_farcall-nfs")).args(["put", "/dev/null", &url]).status().unwrap();
    served.kill().unwrap();
    served.wait().unwrap();
    assert!(copied.success());
    assert_eq!(fs::metadata(directory.path().join("copy")).unwrap().permissions().mode() & 0o777, 0o644);
}

#[test]
fn what_fails_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, url) = serve(&directory);
    let (there, here) = (format!("{url}/nothing"), directory.path().join("nothing"));
    let here = here.to_str().unwrap();
    for (arguments, name) in
        [(&["cat", &there][..], &*there), (&["put", here, &url], here), (&["serve", here], here)]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_farcall-nfs")).args(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.starts_with(&format!("farcall-nfs: {name}: ")), "{said}");
    }
}
