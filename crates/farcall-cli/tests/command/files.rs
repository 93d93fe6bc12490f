//! Tests `serve`, and the commands that read from it: `ls`, `cat`, `get`.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use crate::common::{Place, names_in};

fn large() -> Vec<u8> {
    (0..3_000_000u32).flat_map(|i| (i % 251).to_be_bytes()).skip(5).collect()
}

#[test]
fn a_served_directory_is_listed() {
    let place = Place::new();
    place.write("dir/b", "12345");
    place.write("dir/sub/a", "");
    let _server = place.serve("dir", "FileAccess");
    let file = File::options().write(true).open(place.path("dir/b")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(951_827_696)).unwrap();

    let listed = place.run(&["ls"]).ok();
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines[0], "-            5 2000-02-29T12:34:56Z b");
    assert!(lines[1].starts_with("d ") && lines[1].ends_with(" sub"), "{}", lines[1]);

    let listed = place.run(&["ls", "sub/.", "--json"]).json();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["kind"], &listed[0]["size"]),
        (&"a".into(), &"file".into(), &0.into())
    );
}

#[test]
fn files_are_printed() {
    let place = Place::new();
    place.write("dir/one", "first\n");
    place.write("dir/two", "second\n");
    place.write("dir/empty", "");
    let server = place.serve("dir", "FileAccess/here");
    assert_eq!(place.run(&["cat", "one", "empty", "two"]).ok(), "first\nsecond\n");
    assert_eq!(place.run(&["cat", "one", "--from", &server.fact("url")]).ok(), "first\n", "by address");
    let parts = place.run(&["--json", "cat", "one", "--from", "FileAccess/here"]).json();
    assert_eq!((parts.len(), &parts[0]["base64"]), (1, &"Zmlyc3QK".into()));
}

#[test]
fn a_large_file_is_copied_with_its_time() {
    let place = Place::new();
    let original = place.write("dir/large", large());
    let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(1_234_567_890_123_456_789);
    File::options().write(true).open(original).unwrap().set_modified(time).unwrap();
    let _server = place.serve("dir", "FileAccess");

    let said = place.run(&["--json", "get", "large"]).json();
    assert_eq!((&said[0]["bytes"], &said[0]["resumed_at"]), (&large().len().into(), &0.into()));
    assert!(place.read("large") == large());
    assert_eq!(fs::metadata(place.path("large")).unwrap().modified().unwrap(), time);

    let again = place.run(&["get", "large"]);
    assert_eq!((again.code, again.err.as_str()), (1, "farcall: large exists\nhint: --force replaces it\n"));
    fs::create_dir(place.path("other")).unwrap();
    place.run(&["get", "large", "other", "--force"]).ok();
    assert_eq!(names_in(&place.path("other")), ["large"], "and no part of it is left");
}

#[test]
fn an_interrupted_copy_goes_on_where_it_was() {
    let place = Place::new();
    let original = place.write("dir/large", large());
    let time = fs::metadata(original).unwrap().modified().unwrap();
    let half = large().len() / 2 + 1;
    let part = place.write("large.part", &large()[..half]);
    File::options().write(true).open(part).unwrap().set_modified(time).unwrap();
    let _server = place.serve("dir", "FileAccess");
    let said = place.run(&["--json", "get", "large"]).json();
    assert_eq!(said[0]["resumed_at"], half);
    assert!(place.read("large") == large());
}

#[test]
fn a_part_of_another_version_is_not_used() {
    let place = Place::new();
    place.write("dir/file", "new content");
    let part = place.write("file.part", "old content that is longer");
    File::options().write(true).open(part).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let _server = place.serve("dir", "FileAccess");
    let said = place.run(&["--json", "get", "file"]).json();
    assert_eq!(said[0]["resumed_at"], 0);
    assert_eq!(place.read("file"), b"new content");
}

#[test]
fn what_the_server_refuses_is_an_exception() {
    let place = Place::new();
    place.write("dir/sub/file", "");
    place.write("secret", "");
    let _server = place.serve("dir", "FileAccess");
    for (arguments, why) in [
        (["cat", "nothing"], "nothing: no such file or directory"),
        (["cat", "sub"], "sub: not a regular file"),
        (["ls", "sub/file"], "sub/file: not a directory"),
        (["cat", "../secret"], "../secret: not a path: it contains '..'"),
        (["get", "nothing"], "nothing: no such file or directory"),
    ] {
        let said = place.run(&arguments);
        assert_eq!((said.code, said.err), (3, format!("farcall: {why}\n")), "{arguments:?}");
    }
}

#[test]
fn without_a_server_nothing_ran() {
    let place = Place::new();
    let said = place.run(&["ls"]);
    assert_eq!(said.code, 4);
    assert!(
        said.err.starts_with("farcall: no such name: nobody exports FileAccess; it did not run\nhint: "),
        "{said:?}"
    );
    let said = place.run(&["ls", "--json"]);
    let error: serde_json::Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!((&error["error"]["kind"], &error["error"]["ran"]), (&"NoSuchName".into(), &"No".into()));
}

#[test]
fn what_cannot_be_served_is_named() {
    let place = Place::new();
    let said = place.run(&["serve", "nothing"]);
    assert_eq!(said.code, 1);
    assert!(said.err.starts_with("farcall: nothing: No such file"), "{said:?}");
    place.write("dir/file", "");
    let said = place.run(&["serve", "dir", "--address", "0.0.0.0:0"]);
    assert!(said.code == 1 && said.err.contains("--open"), "{said:?}");
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = place.run(&["serve", "dir", "--address", &address]);
    // No call was made.
    assert!(said.code == 1 && said.err.contains(&address) && !said.err.contains(" run"), "{said:?}");
    let said = place.run(&["serve", "dir", "--name", "no such name"]);
    assert!(said.code == 2 && said.err.contains("TYPE/INSTANCE"), "{said:?}");
}

#[cfg(unix)]
#[test]
fn an_interrupted_server_withdraws_its_name() {
    let place = Place::new();
    place.write("dir/file", "");
    let server = place.serve("dir", "FileAccess/here");
    assert_eq!(place.run(&["--json", "names"]).json()[0]["name"], "FileAccess/here");
    let said = server.interrupt();
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert_eq!(place.run(&["names"]).ok(), "");
}

#[test]
fn a_reader_that_has_had_enough_is_no_failure_worth_mention() {
    let place = Place::new();
    place.write("dir/large", large());
    let _server = place.serve("dir", "FileAccess");
    let mut command = place.command(&["cat", "large"]);
    let mut child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
