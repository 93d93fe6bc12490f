//! Tests `farcall keys`: identities, grants, revocation lists and key files as users make and read them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use serde_json::{Value, json};

use crate::common::{Place, Said};

/// A place with a directory of key files that only its user can write.
struct Keys(Place);

impl Keys {
    fn new() -> Keys {
        Keys(Place::new())
    }

    /// A place in which an identity and an authority were made. Returns their public keys.
    fn made() -> (Keys, String, String) {
        let keys = Keys::new();
        let own = keys.run(&["make"]).ok().trim().to_owned();
        let authority = keys.run(&["authority", "ca.key"]).ok().trim().to_owned();
        (keys, own, authority)
    }

    fn run(&self, arguments: &[&str]) -> Said {
        let mut command = self.0.command(&["keys"]);
        Said::of(command.args(arguments).env("FARCALL_KEYS", self.0.path("keys")).output().unwrap())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let mut lines = self.run(&[&["--json"], arguments].concat()).json();
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.remove(0)
    }

    fn put(&self, file: &str, content: &str) {
        let path = self.0.write(&format!("keys/{file}"), content);
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }

    /// The failure as JSON: message and hint, without the place's path.
    fn failure(&self, arguments: &[&str], code: i32) -> (String, String) {
        let said = self.run(&[&["--json"], arguments].concat());
        assert_eq!((said.code, said.out.as_str()), (code, ""), "{said:?}");
        let error: Value = serde_json::from_str(&said.err).unwrap();
        let place = self.0.path("").display().to_string();
        ["message", "hint"]
            .map(|field| error["error"][field].as_str().unwrap_or_default().replace(&place, ""))
            .into()
    }
}

#[test]
fn an_identity_is_made_once() {
    let keys = Keys::new();
    let made = keys.json(&["make"]);
    let path = keys.0.path("keys/identity");
    assert_eq!(made["file"], path.display().to_string());
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(fs::metadata(keys.0.path("keys")).unwrap().mode() & 0o7777, 0o700);
    let before = fs::read(&path).unwrap();
    let (message, hint) = keys.failure(&["make"], 1);
    assert_eq!(message, "keys/identity: expected no file; found a file");
    assert_eq!(hint, "a private key is never overwritten: choose another name, or move the file away");
    assert_eq!(fs::read(&path).unwrap(), before);
    let shown = keys.json(&["show"]);
    assert_eq!((&shown["key"], &shown["fingerprint"]), (&made["key"], &made["fingerprint"]));
    assert_eq!(keys.run(&["show", "keys/identity"]).ok().trim(), made["key"].as_str().unwrap());
    let other = keys.json(&["make", "--dir", "other"]);
    assert_ne!(other["key"], made["key"]);
}

#[test]
fn grants_are_signed_for_files_and_shown() {
    let (keys, own, authority) = Keys::made();
    let arguments = [
        "grant",
        "--authority",
        "ca.key",
        "--key",
        &own,
        "--principal",
        "stored",
        "--export",
        "Store",
        "--days",
        "90",
    ];
    let line = keys.run(&arguments).ok();
    keys.put("grants", &line);
    let both = ["--export", "Store/main", "--import", "Store/main"];
    let signed = keys.json(
        &[&["grant", "--authority", "ca.key", "--key", &own, "--principal", "a", "--days", "1"], &both[..]]
            .concat(),
    );
    assert_eq!(signed["authority"], authority);
    assert_eq!((&signed["rights"], &signed["scope"]), (&json!(["export", "import"]), &json!("Store/main")));
    keys.put("authorities", &format!("{authority} our own\n"));
    keys.put("known_servers", &format!("Files {own} or-granted\n"));
    keys.put("authorized_keys", &format!("{own} alice type=Store this end\n"));
    keys.put("policy", "allow alice Store get\n");
    let shown = keys.json(&["show"]);
    assert_eq!(shown["authorities"], json!([{ "key": authority, "comment": "our own" }]));
    let server = json!([{ "scope": "Files", "key": own, "or_granted": true, "comment": "" }]);
    assert_eq!(shown["known_servers"], server);
    let client = json!([{ "key": own, "principal": "alice", "scope": "Store", "comment": "this end" }]);
    assert_eq!(shown["authorized_keys"], client);
    assert_eq!(shown["policy_rules"], 1);
    let grant = &shown["grants"][0];
    assert_eq!((&grant["principal"], &grant["scope"]), (&json!("stored"), &json!("Store")));
    let table = keys.run(&["show"]).ok();
    for part in [
        &format!("key          {own}\n"),
        &format!("\n  export Store as stored, serial {}, until 20", grant["serial"]),
        &format!("\nauthorities\n  {authority} our own\n"),
        &format!("\nauthorized_keys\n  {own} alice type=Store this end\n"),
        &format!("\nknown_servers\n  Files {own} or-granted\n"),
        "\npolicy\n  1 rule\n",
    ] {
        assert!(table.contains(part), "{part:?} is not in {table}");
    }
    assert!(keys.run(&["check-files"]).ok().ends_with("keys: no fault\n"));
}

#[test]
fn a_list_grows_with_each_revocation() {
    let (keys, own, authority) = Keys::made();
    let revoke = ["revoke", "--authority", "ca.key", "--list", "keys/revoked"];
    let first = keys.json(&[&revoke[..], &["--serial", "17", "--greatest-age", "7"]].concat());
    assert_eq!((&first["authority"], &first["serial"]), (&json!(authority), &json!(1)));
    assert_eq!(
        (&first["keys"], &first["grants"], &first["greatest_age"]),
        (&json!(0), &json!(1), &json!(604_800))
    );
    let second = keys.json(&[&revoke[..], &["--serial", "18", "--serial", "17", "--key", &own]].concat());
    assert_eq!((&second["serial"], &second["keys"], &second["grants"]), (&json!(2), &json!(1), &json!(2)));
    assert_eq!(second["greatest_age"], 604_800, "as before");
    // The list of another authority is kept.
    let other = keys.run(&["authority", "other.key"]).ok().trim().to_owned();
    keys.json(&["revoke", "--authority", "other.key", "--list", "keys/revoked"]);
    let third = keys.run(&revoke).ok();
    assert!(third.starts_with("keys/revoked: serial 3, 1 key, 2 grants, good until 20"), "{third}");
    keys.put("authorities", &format!("{authority}\n{other}\n"));
    let shown = keys.json(&["show"]);
    let lists = shown["revoked"].as_array().unwrap();
    assert_eq!(lists.len(), 2);
    let own_list = lists.iter().find(|list| list["authority"] == authority.as_str()).unwrap();
    assert_eq!((&own_list["grants"], &own_list["keys"]), (&json!([17, 18]), &json!([own])));
    let said = keys.run(&["check-files"]);
    let expected = format!(
        "broken: identity: the key {own} is revoked; make a new one (`farcall keys \
        make`)\n"
    );
    assert!(said.code == 1 && said.out.contains(&expected), "{said:?}");
    assert!(said.out.contains("soon: revoked: the time of the list 3 of"), "{said:?}");
}

#[test]
fn a_list_that_the_authority_did_not_sign_is_not_taken_over() {
    let (keys, ..) = Keys::made();
    let revoke = ["revoke", "--authority", "ca.key", "--list", "list"];
    keys.run(&[&revoke[..], &["--serial", "1"]].concat()).ok();
    let text = String::from_utf8(keys.0.read("list")).unwrap();
    // In the last line of the base64 is the signature.
    let mut lines: Vec<&str> = text.lines().collect();
    let place = lines.len() - 2;
    let changed = format!("{}{}", if lines[place].starts_with('A') { 'B' } else { 'A' }, &lines[place][1..]);
    lines[place] = &changed;
    keys.0.write("list", lines.join("\n"));
    let (message, hint) = keys.failure(&revoke, 1);
    assert_eq!(
        (message.as_str(), hint.as_str()),
        (
            "list: this authority did not sign its list",
            "restore \
        the file from a copy"
        )
    );
}

#[test]
fn faults_of_files_have_hints() {
    let (keys, own, _) = Keys::made();
    keys.put("authorized_keys", &format!("# clients\n{own} alice\ngarbage\n"));
    for command in ["show", "check-files"] {
        let (message, hint) = keys.failure(&[command], 1);
        let expected = "keys/authorized_keys, line 3: expected a public key; found \"garbage\" (a public \
                        key has 44 characters of base64, not 7)";
        assert_eq!(message, expected);
        assert!(hint.starts_with("write a line as KEY alice"), "{hint}");
    }
    fs::set_permissions(keys.0.path("keys/identity"), fs::Permissions::from_mode(0o644)).unwrap();
    let (message, hint) = keys.failure(&["show"], 1);
    assert!(message.starts_with("keys/identity: expected mode 0600"), "{message}");
    assert_eq!(hint, "`chmod 600 keys/identity`; make a new key if others may have read it");
    let (message, hint) = keys.failure(&["show", "--dir", "nowhere"], 1);
    assert_eq!(message, "nowhere: expected a directory of key files; found no such directory");
    assert_eq!(hint, "make it and an identity in it: `farcall keys make`");
    let said = Said::of(
        keys.0.command(&["keys", "show"]).env_remove("FARCALL_KEYS").env_remove("HOME").output().unwrap(),
    );
    assert!(said.code == 1 && said.err.contains("neither FARCALL_KEYS nor HOME is set"), "{said:?}");
}

#[test]
fn the_directory_of_a_user_is_in_the_home() {
    let keys = Keys::new();
    let run = |action| {
        Said::of(keys.0.command(&["keys", action]).env("HOME", keys.0.path("home")).output().unwrap())
    };
    let made = run("make").ok();
    assert!(keys.0.path("home/.config/farcall/identity").exists());
    assert!(run("show").ok().contains(made.trim()));
}

#[test]
fn a_wrong_request_is_exit_code_2() {
    let (keys, own, _) = Keys::made();
    let grant = |more: &[&str]| {
        let base = ["grant", "--authority", "ca.key", "--key", &own, "--principal", "alice"];
        keys.run(&[&base[..], more].concat())
    };
    for (more, part) in [
        (&["--days", "90"][..], "--export <NAME>|--import <NAME>"),
        (&["--days", "0", "--import", "Store"], "0 is not in 1..=36500"),
        (&["--days", "9", "--import", "Sto*"], "expected a whole type, or *; found \"Sto*\""),
        (&["--days", "9", "--import", "A", "--export", "B"], "a grant has one name"),
    ] {
        let said = grant(more);
        assert!(said.code == 2 && said.err.contains(part), "{part:?}: {said:?}");
    }
    let said = keys.run(&["revoke", "--authority", "ca.key", "--list", "list", "--key", "x"]);
    assert!(
        said.code == 2 && said.err.contains("a public key has 44 characters of base64, not 1"),
        "{said:?}"
    );
    let long = format!("{}/{}", "t".repeat(128), "i".repeat(128));
    let said = grant(&["--days", "9", "--import", &long]);
    assert!(said.code == 2 && said.err.contains("have at most 171 bytes together"), "{said:?}");
    assert_eq!(keys.run(&[]).code, 2);
    let help = keys.run(&["--help"]).ok();
    for word in ["make", "show", "authority", "grant", "revoke", "check-files", "FARCALL_KEYS"] {
        assert!(help.contains(word), "{word} is not in {help}");
    }
}
