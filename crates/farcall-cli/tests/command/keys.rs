//! Tests `farcall keys`: identities, grants, revocation lists and key files as users make and read them.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::common::{Place, Said, Started};

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
    keys.put("authorities", &format!("{authority} principals=a*,stored # our own\n"));
    keys.put("known_servers", &format!("Files {own} or-granted\n"));
    keys.put("authorized_keys", &format!("{own} alice type=Store # this end\n"));
    keys.put("policy", "allow alice Store get\n");
    let shown = keys.json(&["show"]);
    assert_eq!(
        shown["authorities"],
        json!([{ "key": authority, "principals": ["a*", "stored"], "comment": "our own" }])
    );
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
        &format!("\nauthorities\n  {authority} principals=a*,stored # our own\n"),
        &format!("\n  authorities, line 1: grants of {authority} count, for the principals a*, stored\n"),
        &format!("\n  authorized_keys, line 1: {own} is alice and may import Store\n"),
        "\n  policy, line 1: allows alice get of Store\n",
        &format!("\nauthorized_keys\n  {own} alice type=Store # this end\n"),
        &format!("\nknown_servers\n  Files {own} or-granted\n"),
        "\npolicy\n  1 rule\n",
    ] {
        assert!(table.contains(part), "{part:?} is not in {table}");
    }
    let said = keys.run(&["check-files"]).ok();
    assert!(said.ends_with("keys: no fault\n"), "{said}");
    assert!(said.contains("\nauthorized_keys, line 1: ") && said.contains("may import Store\n"), "{said}");
    let lines = keys.run(&["--json", "check-files"]).json();
    let expected = json!({ "file": "policy", "line": 1, "gives": "allows alice get of Store" });
    assert!(lines.contains(&expected), "{lines:?}");
    assert!(shown["lines"].as_array().unwrap().contains(&expected), "{shown}");
}

#[test]
fn check_files_says_every_fault_and_what_the_other_lines_give() {
    let (keys, own, authority) = Keys::made();
    keys.put("authorized_keys", &format!("{own} alice\n{own} alice Type=Store\n"));
    keys.put("authorities", &format!("{authority} our own\n"));
    keys.put("policy", "deny eve *\nallw alice *\n");
    let said = keys.run(&["check-files"]);
    assert_eq!(said.code, 1, "{said:?}");
    for part in [
        format!("authorized_keys, line 1: {own} is alice and may import every name\n"),
        "policy, line 1: denies eve everything of every name\n".to_owned(),
        "authorized_keys, line 2, column 52: expected KEY PRINCIPAL [type=TYPE]".to_owned(),
        "authorities, line 1, column 46: expected KEY [principals=PRINCIPAL,...]".to_owned(),
        "policy, line 2, column 1: expected (allow | deny)".to_owned(),
    ] {
        assert!(said.out.contains(&part), "{part:?} is not in {said:?}");
    }
    let said = keys.run(&["--json", "check-files"]);
    let fault = said.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let fault: Vec<Value> = fault.filter(|line| line["broken"] == true).collect();
    assert_eq!((said.code, fault.len()), (1, 3), "{fault:?}");
    assert_eq!((&fault[1]["line"], &fault[1]["column"]), (&json!(2), &json!(52)));
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
    let (message, hint) = keys.failure(&["show"], 1);
    let expected = "keys/authorized_keys, line 3, column 1: expected a public key; found \"garbage\" (a public \
                    key has 44 characters of base64, not 7)";
    assert_eq!(message, expected);
    assert!(hint.starts_with("write a line as KEY alice"), "{hint}");
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

/// Starts an invitation of a machine. Returns it with its token.
fn invite(keys: &Keys, principal: &str, right: &str) -> (Started, String) {
    let base = ["--json", "keys", "invite", "--authority", "ca.key", "--at", "127.0.0.1:0", "--days", "90"];
    let started = keys.0.start(&[&base[..], &["--principal", principal, right, "FileAccess"]].concat());
    let token = started.fact("token");
    (started, token)
}

/// Runs a command with a directory of key files.
fn with_keys(keys: &Keys, directory: &str, arguments: &[&str]) -> Said {
    let mut command = keys.0.command(arguments);
    Said::of(command.env("FARCALL_KEYS", keys.0.path(directory)).output().unwrap())
}

#[test]
fn a_machine_is_enrolled_with_a_token() {
    let (keys, _, authority) = Keys::made();
    let (mut invitation, token) = invite(&keys, "alice", "--import");
    let enrolled = with_keys(&keys, "alice", &["--json", "keys", "enrol", &token]).json().remove(0);
    assert_eq!(enrolled["authority"], authority);
    assert_eq!(enrolled["fingerprint"], invitation.fact("fingerprint"));
    let told: Value = serde_json::from_str(&invitation.line()).unwrap();
    assert_eq!(told["enrolled"], enrolled["grant"]);
    assert_eq!(invitation.wait(), 0);

    let shown = with_keys(&keys, "alice", &["--json", "keys", "show"]).json().remove(0);
    assert_eq!(shown["key"], enrolled["key"]);
    assert_eq!(shown["grants"], json!([enrolled["grant"]]));
    assert_eq!(
        shown["authorities"],
        json!([{ "key": authority, "principals": [], "comment": "enrolled, alice" }])
    );
    assert!(with_keys(&keys, "alice", &["keys", "check-files"]).ok().ends_with("alice: no fault\n"));
    let mode = |file: &str| fs::metadata(keys.0.path(file)).unwrap().mode() & 0o7777;
    assert_eq!([mode("alice"), mode("alice/identity"), mode("alice/grants")], [0o700, 0o600, 0o644]);

    // The token was used, and nobody waits for it any more.
    let said = with_keys(&keys, "eve", &["keys", "enrol", &token]);
    assert_eq!(said.code, 4, "{said:?}");
    assert!(said.err.contains("does `farcall keys invite` still run at the authority"), "{said:?}");
    assert!(!said.err.contains(&token), "a token is not repeated: {said:?}");

    // A second grant for the same machine: it keeps its key, and reads the token from standard input.
    let (invitation, token) = invite(&keys, "alice", "--import");
    let mut command = keys.0.command(&["keys", "enrol", "-"]);
    let command = command.env("FARCALL_KEYS", keys.0.path("alice")).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{token}\n").as_bytes()).unwrap();
    let line = Said::of(child.wait_with_output().unwrap()).ok();
    assert!(line.starts_with("alice may import FileAccess until 20"), "{line}");
    assert_eq!(invitation.wait(), 0);
    let shown = with_keys(&keys, "alice", &["--json", "keys", "show"]).json().remove(0);
    assert_eq!((&shown["key"], shown["grants"].as_array().unwrap().len()), (&enrolled["key"], 2));
    assert_eq!(shown["authorities"].as_array().unwrap().len(), 1);
}

#[test]
fn what_is_no_token_or_no_place_to_wait_is_exit_code_2() {
    let (keys, own, _) = Keys::made();
    for token in ["farcall-enrol:", "nothing", own.as_str()] {
        let (message, _) = keys.failure(&["enrol", token], 2);
        assert!(message.contains("copy the whole token that the authority printed"), "{message}");
    }
    let base = ["invite", "--authority", "ca.key", "--principal", "a", "--import", "Store", "--days", "1"];
    let (message, hint) = keys.failure(&[&base[..], &["--at", "0.0.0.0:0"]].concat(), 2);
    assert_eq!(message, "a new machine cannot reach 0.0.0.0:0");
    assert!(hint.contains("--reached-at"), "{hint}");
    let said = keys.run(&[&base[..7], &["--at", "127.0.0.1:0"]].concat());
    assert_eq!(said.code, 2, "{said:?}");
}

/// Checks a server with a directory of key files. Returns what is said as JSON.
#[cfg(feature = "secure")]
fn check(keys: &Keys, who: &str, arguments: &[&str]) -> Value {
    with_keys(keys, who, &[&["--json", "keys", "check"], arguments].concat()).json().remove(0)
}

#[cfg(feature = "secure")]
#[test]
fn top_and_debug_show_the_conversations_of_a_server_with_keys_to_whom_its_policy_lets() {
    let keys = Keys::new();
    let make = |who: &str| with_keys(&keys, who, &["keys", "make"]).ok().trim().to_owned();
    let [server_key, alice, bob] = ["server", "alice", "bob"].map(make);
    let put = |file: &str, text: &str| {
        let path = keys.0.write(file, text);
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    };
    put("server/authorized_keys", &format!("{alice} alice\n{bob} bob\n"));
    put("server/policy", "allow alice *\nallow bob FileAccess\n");
    for who in ["alice", "bob"] {
        put(&format!("{who}/known_servers"), &format!("* {server_key}\n"));
    }
    keys.0.write("served/todo.txt", "");
    let serve = ["--json", "serve", "served", "--name", "FileAccess/notes"];
    let server = keys.0.start_with(&serve, |command| command.env("FARCALL_KEYS", keys.0.path("server")));
    let url = server.fact("url");
    let address = url.trim_start_matches("udp://").split('/').next().unwrap();

    // A probe needs no keys; a stranger's will do as well.
    with_keys(&keys, "carol", &["keys", "make"]).ok();
    let probe = ["--json", "ping", "--answers", &url];
    for (said, refused) in [
        (keys.0.run(&probe), true),
        (with_keys(&keys, "carol", &probe), true),
        (with_keys(&keys, "alice", &probe), false),
    ] {
        assert_eq!(said.json(), [json!({ "name": url, "answers": true, "refused": refused })]);
    }
    let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = format!("udp://{}/FileAccess", nobody.local_addr().unwrap());
    assert_eq!(keys.0.run(&["ping", "--answers", "--within", "0.3", &nobody]).code, 4);
    with_keys(&keys, "bob", &["ls", "--from", &url]).ok();
    for command in [&["debug", address][..], &["top", "--once", address]] {
        let said = with_keys(&keys, "bob", command);
        let why = "the policy does not let bob read the server's counters";
        assert!(said.code != 0 && said.out.is_empty() && said.err.contains(why), "{said:?}");
        let said = with_keys(&keys, "alice", command).ok();
        assert!(said.contains(&format!("level secure, key {server_key}\n")), "{said}");
        assert!(said.contains("  bob at 127.0.0.1:") && said.contains("  alice at 127.0.0.1:"), "{said}");
        let said = with_keys(&keys, "alice", &[&["--json"], command].concat()).json().remove(0);
        let security = &said["security"];
        assert_eq!((&security["level"], &security["untold"]), (&json!("secure"), &json!(0)));
        assert_eq!(
            security["identity"],
            json!({ "key": server_key, "principals": [], "key_file_faults": [] })
        );
        let conversations = security["conversations"].as_array().unwrap();
        let of = |who: &str| conversations.iter().find(|one| one["principal"] == who).unwrap();
        for (who, key) in [("alice", &alice), ("bob", &bob)] {
            let one = of(who);
            assert_eq!(
                (&one["key"], &one["level"], &one["phase"]),
                (&json!(key), &json!("secure"), &json!(0))
            );
            assert!(one["handshake_age_s"].as_f64() >= Some(0.0) && one["suite"].is_string(), "{one}");
        }
        assert_eq!(conversations[0]["running"], 1, "the call that asks comes first");
    }
    // A typo is told to whom the policy lets, and what the line gave before has ended.
    put("server/policy.new", "allow alice *\nallow bob FileAccess\nalow bob *\n");
    fs::rename(keys.0.path("server/policy.new"), keys.0.path("server/policy")).unwrap();
    let debug = || with_keys(&keys, "alice", &["debug", address]).ok();
    while !debug().contains("a key file has a fault, and gives nothing new: ") {}
    assert!(debug().contains("policy, line 3, column 1: expected (allow | deny)"), "{}", debug());
}

#[cfg(feature = "secure")]
#[test]
fn a_check_says_who_answers_and_what_it_lets_this_end_do() {
    let (keys, ..) = Keys::made();
    let mut enrolled = Vec::new();
    for (who, right) in [("server", "--export"), ("client", "--import")] {
        let (_invitation, token) = invite(&keys, who, right);
        enrolled.push(with_keys(&keys, who, &["--json", "keys", "enrol", &token]).json().remove(0));
    }
    keys.0.write("served/todo.txt", "");
    let serve = ["--json", "serve", "served", "--name", "FileAccess/notes"];
    let server = keys.0.start_with(&serve, |command| command.env("FARCALL_KEYS", keys.0.path("server")));
    let url = server.fact("url");
    let address = url.trim_start_matches("udp://").split('/').next().unwrap();

    let said = check(&keys, "client", &[address]);
    assert_eq!((&said["key"], &said["principal"]), (&enrolled[0]["key"], &json!("server")));
    assert_eq!(said["authority"], enrolled[0]["authority"]);
    assert_eq!(
        (&said["serial"], &said["expires"]),
        (&enrolled[0]["grant"]["serial"], &enrolled[0]["grant"]["expires"])
    );
    assert_eq!((&said["level"], &said["own_key"]), (&json!("secure"), &enrolled[1]["key"]));
    assert!(["AES-128-GCM", "ChaCha20-Poly1305"].contains(&said["suite"].as_str().unwrap()));
    assert_eq!(said["own_grants"], json!([enrolled[1]["grant"]]));
    assert_eq!(said.get("may"), None);
    let said = check(&keys, "client", &[address, "FileAccess/notes"]);
    assert_eq!(said["may"], json!({ "health": true, "describe": true, "refused": null }));
    assert!(said["procedures"].as_array().unwrap().contains(&json!("stat")));
    let page = with_keys(&keys, "client", &["keys", "check", address, "FileAccess"]).ok();
    for part in [
        " answers for FileAccess\n",
        "principal    server\n",
        "accepted by  grant ",
        "sealed       secure, ",
        "for its health: yes\n",
    ] {
        assert!(page.contains(part), "{part:?} is not in {page}");
    }

    let fails = |who: &str, arguments: &[&str], code: i32| {
        let said = with_keys(&keys, who, &[&["--json", "keys", "check"], arguments].concat());
        assert_eq!(said.code, code, "{said:?}");
        let error: Value = serde_json::from_str(&said.err).unwrap();
        ["message", "hint"].map(|field| error["error"][field].as_str().unwrap_or_default().to_owned())
    };
    // The policy lets nobody do anything.
    let policy = keys.0.write("server/policy.new", "deny * *\n");
    fs::set_permissions(policy, fs::Permissions::from_mode(0o644)).unwrap();
    fs::rename(keys.0.path("server/policy.new"), keys.0.path("server/policy")).unwrap();
    while with_keys(&keys, "client", &["keys", "check", address, "FileAccess/notes"]).code == 0 {}
    let [message, _] = fails("client", &[address, "FileAccess/notes"], 1);
    assert!(message.contains("the policy does not let client ask for the health"), "{message}");
    // The server's grant is for another name.
    let [message, hint] = fails("client", &[address, "Store/main"], 4);
    assert!(message.contains("expected") && message.contains("found the key"), "{message}");
    assert!(hint.contains("Store/main") || hint.contains("grant"), "{hint}");
    // This end knows nobody.
    with_keys(&keys, "nobody", &["keys", "make"]).ok();
    let [message, hint] = fails("nobody", &[address], 4);
    assert!(message.contains("expected a grant of a trusted authority"), "{message}");
    assert!(hint.contains("add the authority to authorities if you trust it"), "{hint}");
    // The server does not know this end.
    fs::copy(keys.0.path("client/authorities"), keys.0.path("nobody/authorities")).unwrap();
    let [message, hint] = fails("nobody", &[address], 4);
    assert!(message.contains("the server did not say why"), "{message}");
    assert!(hint.contains("only by a line of its authorized_keys, or by a grant"), "{hint}");
    let [message, _] = fails("client", &["nowhere"], 2);
    assert!(message.contains("is no HOST:PORT"), "{message}");
    fails("client", &[address, "udp://10.0.0.7:1/Store"], 2);
    drop(server);
    let [message, hint] = fails("client", &[address], 4);
    assert!(message.contains(address) && hint.contains("is the server running"), "{message} {hint}");
}

#[cfg(feature = "secure")]
#[test]
fn enrolled_machines_call_one_another_by_names() {
    let (keys, ..) = Keys::made();
    for (who, right) in [("server", "--export"), ("client", "--import"), ("stranger", "--export")] {
        let (_invitation, token) = invite(&keys, who, right);
        with_keys(&keys, who, &["keys", "enrol", &token]).ok();
    }
    keys.0.write("served/todo.txt", "buy milk\n");
    let serve = ["--json", "serve", "served", "--name", "FileAccess/notes"];
    let _server = keys.0.start_with(&serve, |command| command.env("FARCALL_KEYS", keys.0.path("server")));
    let cat = ["cat", "todo.txt", "--from", "FileAccess/notes"];
    assert_eq!(with_keys(&keys, "client", &cat).ok(), "buy milk\n");
    // Two grants that fit are shown together.
    let (_invitation, token) = invite(&keys, "client", "--import");
    with_keys(&keys, "client", &["keys", "enrol", &token]).ok();
    assert_eq!(with_keys(&keys, "client", &cat).ok(), "buy milk\n");
    // One that may only export is known, and gets nothing.
    let said = with_keys(&keys, "stranger", &cat);
    assert_eq!(said.code, 4, "{said:?}");
    let said = keys.0.run(&cat);
    assert_eq!(said.code, 4, "{said:?}");
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
    for word in
        ["make", "show", "authority", "grant", "invite", "enrol", "revoke", "check-files", "FARCALL_KEYS"]
    {
        assert!(help.contains(word), "{word} is not in {help}");
    }
}
