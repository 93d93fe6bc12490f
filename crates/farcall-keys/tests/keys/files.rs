//! Tests key files: what is read, what is refused and how that is said, and when files are read again.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;

use farcall_keys::{KeyFiles, Presentation, RevocationList, Revoked, Right, Rights};

use crate::common::{AUTHORITY, CLIENT, DAY, NOW, OTHER, SERVER, grant, identity, key};

/// A directory of key files.
pub struct Place(pub tempfile::TempDir);

impl Place {
    /// A directory that has an identity.
    pub fn new() -> Place {
        let place = Place::empty();
        KeyFiles::write_identity(&place.path("identity"), &identity(SERVER)).unwrap();
        place
    }

    fn empty() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Puts a new file in the place of what was there.
    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let new = self.path("new");
        fs::write(&new, content).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644)).unwrap();
        fs::rename(new, self.path(name)).unwrap();
    }

    pub fn mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// The fault of opening the directory, without the directory's path.
    #[track_caller]
    fn fault(&self) -> String {
        let why = KeyFiles::open(self.0.path()).unwrap_err().to_string();
        assert!(!why.contains('\n'), "{why}");
        why.replace(&format!("{}", self.0.path().display()), "DIR")
    }
}

/// Asserts that a directory with this file has this fault.
#[track_caller]
fn refuses(file: &str, content: &str, expected: &str) {
    let place = Place::new();
    place.put(file, content);
    assert_eq!(place.fault(), expected, "{content}");
}

pub fn list(serial: u64, grants: &[u64]) -> RevocationList {
    identity(AUTHORITY).revoke(serial, NOW, DAY, Revoked::new([], grants.iter().copied()).unwrap())
}

#[test]
fn a_directory_of_all_files_is_read() {
    let place = Place::new();
    let own = grant(SERVER, "stored", Rights::EXPORT, "Store");
    place.put("grants", format!("# what we may export\n\n{} # the main store # 2027\n", own.to_text()));
    place.put("authorities", format!("{} # our own\r\n", key(AUTHORITY)));
    place.put(
        "authorized_keys",
        format!("{0} alice type=Store # her laptop\n{0} alice type=Files\n", key(CLIENT)),
    );
    place
        .put("known_servers", format!("Store/main {} or-granted\n* {} # for all\n", key(OTHER), key(CLIENT)));
    KeyFiles::write_revocations(&place.path("revoked"), &[list(3, &[9])]).unwrap();
    place.put("policy", "allow alice Store get\n");
    let (files, keyring) = KeyFiles::open(place.0.path()).unwrap();
    assert_eq!(files.directory(), place.0.path());
    assert_eq!(keyring.identity().public(), key(SERVER));
    let shown = Presentation::decode(&keyring.presentation("Store", "main", Right::Export)).unwrap();
    assert_eq!(shown.grants(), [own]);
    let authorities: Vec<_> = keyring.authorities().collect();
    assert_eq!((authorities[0].key, authorities[0].comment.as_str()), (key(AUTHORITY), "our own"));
    let texts: Vec<_> = keyring.authorized_keys().map(ToString::to_string).collect();
    let alice = format!("{} alice type=", key(CLIENT));
    assert_eq!(texts, [format!("{alice}Store # her laptop"), format!("{alice}Files")]);
    let texts: Vec<_> = keyring.known_servers().map(ToString::to_string).collect();
    let all = [format!("* {} # for all", key(CLIENT)), format!("Store/main {} or-granted", key(OTHER))];
    assert_eq!(texts, all);
    assert_eq!(keyring.revocations().map(RevocationList::serial).collect::<Vec<_>>(), [3]);
    assert_eq!(keyring.policy().map(|policy| policy.len()), Some(1));
}

#[test]
fn only_the_identity_must_exist() {
    let place = Place::new();
    let (_, keyring) = KeyFiles::open(place.0.path()).unwrap();
    assert!(keyring.policy().is_none() && keyring.grants().is_empty());
    let place = Place::empty();
    assert_eq!(
        place.fault(),
        "DIR/identity: expected a file with a private key; found no such file; make an identity: `farcall \
         keys make`"
    );
    let why = KeyFiles::open(place.path("nowhere")).unwrap_err().to_string();
    assert!(why.ends_with(
        "nowhere: expected a directory of key files; found no such directory; make it and an identity in it: \
         `farcall keys make`"
    ));
    let why = KeyFiles::open("/dev/null").unwrap_err().to_string();
    assert_eq!(why, "/dev/null: expected a directory of key files; found something else; name a directory");
}

#[test]
fn a_private_key_is_written_once_and_with_mode_0600() {
    let place = Place::new();
    let path = place.path("identity");
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    let why = KeyFiles::write_identity(&path, &identity(OTHER)).unwrap_err().to_string();
    assert!(why.ends_with(
        "identity: expected no file; found a file; a private key is never overwritten: choose another name, \
         or move the file away"
    ));
    assert_eq!(KeyFiles::read_identity(&path).unwrap().public(), key(SERVER));
    let why = KeyFiles::write_identity(&place.path("no/where"), &identity(OTHER)).unwrap_err().to_string();
    assert!(why.contains("expected a file that can be written; found No such file"), "{why}");
}

#[test]
fn a_private_key_that_others_can_read_is_refused() {
    let place = Place::new();
    for (mode, shown) in [(0o640, "0640"), (0o604, "0604"), (0o660, "0660"), (0o644, "0644")] {
        place.mode("identity", mode);
        assert_eq!(
            place.fault(),
            format!(
                "DIR/identity: expected mode 0600: it has a private key; found mode {shown}, with which \
                 others can use it; `chmod 600 DIR/identity`; make a new key if others may have read it"
            )
        );
    }
    place.mode("identity", 0o400);
    assert!(KeyFiles::open(place.0.path()).is_ok());
}

#[test]
fn a_file_or_directory_that_others_can_write_is_refused() {
    let place = Place::new();
    place.put("authorities", format!("{}\n", key(AUTHORITY)));
    place.mode("authorities", 0o664);
    let found =
        "found mode 0664, with which others can change whom farcall trusts; `chmod go-w DIR/authorities`";
    assert!(place.fault().ends_with(found), "{}", place.fault());
    place.mode("authorities", 0o644);
    place.mode("", 0o777);
    assert!(place.fault().ends_with("`chmod go-w DIR`"), "{}", place.fault());
    place.mode("", 0o755);
    assert!(KeyFiles::open(place.0.path()).is_ok());
}

#[test]
fn a_file_of_another_user_is_refused() {
    let place = Place::new();
    place.put("policy", "");
    // Only root can give a file away.
    if std::os::unix::fs::chown(place.path("policy"), Some(12345), None).is_err() {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "skipped: files of other users: only root can make one");
        return;
    }
    assert!(place.fault().contains("found one of user 12345, who could change whom farcall trusts; `chown "));
    place.put("policy", "");
    std::os::unix::fs::chown(place.path("identity"), Some(12345), None).unwrap();
    let why = place.fault();
    assert!(why.contains("found a file of user 12345; run as user 12345, or `chown "), "{why}");
}

#[test]
fn faults_of_grants_and_keys_are_named_with_what_to_do() {
    let good = key(CLIENT);
    let other = grant(CLIENT, "alice", Rights::IMPORT, "Store").to_text();
    for (file, content, expected) in [
        (
            "grants",
            format!("# one\n\n{other}\n"),
            format!(
                "DIR/grants, line 3: expected a grant for {}; found a grant for {good}; remove it here, and \
                 give it to the owner of that key",
                key(SERVER)
            ),
        ),
        (
            "grants",
            "\n\ngarbage".to_owned(),
            "DIR/grants, line 3, column 1: expected a grant in base64; found not a grant: at byte 0: \"garbage\" is \
             not standard base64; copy the whole line that `farcall keys grant` printed"
                .to_owned(),
        ),
        (
            "authorities",
            format!("{good}\n# x\ngarbage # our own"),
            "DIR/authorities, line 3, column 1: expected a public key; found \"garbage\" (a public key has 44 \
             characters of base64, not 7); `farcall keys show` prints the public key of an authority's file"
                .to_owned(),
        ),
        (
            "authorities",
            identity(OTHER).to_text().to_string(),
            "DIR/authorities, line 1, column 1: expected a public key; found a private key (this is a private key, \
             and a public key is expected); `farcall keys show` prints the public key of an authority's file"
                .to_owned(),
        ),
        (
            "authorized_keys",
            format!("{good} alice\n{good}\n"),
            "DIR/authorized_keys, line 2, column 45: expected KEY PRINCIPAL [type=TYPE] [instance=INSTANCE] \
             [# COMMENT]; found no principal; write a line as KEY alice type=Store # her laptop; \
             `farcall keys show` prints a client's key"
                .to_owned(),
        ),
        (
            "authorized_keys",
            format!("{good} alice\n\n{good} bob\n"),
            format!(
                "DIR/authorized_keys, line 3: expected one principal for a key; {good} is \"alice\"; found \
                 \"bob\" for the same key; give both lines the same principal, or remove one"
            ),
        ),
        (
            "authorized_keys",
            format!("{good} alice instance=main type=Store instance=other\n"),
            "DIR/authorized_keys, line 1, column 86: expected KEY PRINCIPAL [type=TYPE] [instance=INSTANCE] \
             [# COMMENT]; found the same word twice; write one line for each scope"
                .to_owned(),
        ),
    ] {
        refuses(file, &content, &expected);
    }
}

#[test]
fn faults_of_servers_lists_and_policies_are_named_with_what_to_do() {
    let good = key(CLIENT);
    for (file, content, expected) in [
        (
            "known_servers",
            format!("Sto* {good}"),
            "DIR/known_servers, line 1, column 1: expected a whole type, or *; found \"Sto*\"; write a line as \
             Store/main KEY, or * KEY; `farcall keys show` prints a key"
                .to_owned(),
        ),
        (
            "revoked",
            "# x\nQUJD\n".to_owned(),
            "DIR/revoked, line 2: expected -----BEGIN FARCALL REVOCATION LIST-----; found \"QUJD\"; ask the \
             authority for its list again (`farcall keys revoke` writes it)"
                .to_owned(),
        ),
        (
            "policy",
            "allow alice Store\nallow bob\n".to_owned(),
            "DIR/policy, line 2, column 10: expected (allow | deny) PRINCIPAL TYPE[/INSTANCE] [PROCEDURE,...]; found \
             no name; write a rule as: allow alice Store/main get,put"
                .to_owned(),
        ),
        (
            "policy",
            format!("\n#{}", "x".repeat(4096)),
            "DIR/policy, line 2: expected a line of at most 4096 bytes; found 4097 bytes; break the line, \
             or remove it"
                .to_owned(),
        ),
    ] {
        refuses(file, &content, &expected);
    }
    let place = Place::new();
    place.put("policy", b"# x\n\xff\n");
    let expected =
        "DIR/policy, line 2: expected UTF-8; found bytes that are not UTF-8; write the file again, as text";
    assert_eq!(place.fault(), expected);
}

#[test]
fn a_faulty_identity_is_not_shown() {
    const EXPECTED: &str = "expected one line, \"private:\" and 44 characters of base64; found ";
    for (content, found) in [
        ("", "DIR/identity: EXPECTEDno line"),
        ("\n\nprivate:sesame\n", "DIR/identity, line 3: EXPECTEDanother text of 14 bytes"),
        ("private:a\nprivate:b\n", "DIR/identity, line 2: EXPECTEDanother line"),
    ] {
        let place = Place::empty();
        fs::write(place.path("identity"), content).unwrap();
        place.mode("identity", 0o600);
        let expected = found.replace("EXPECTED", EXPECTED);
        let advice = "restore the file from a copy, or make a new identity: `farcall keys make`";
        assert_eq!(place.fault(), format!("{expected}; {advice}"));
    }
}

#[test]
fn a_revocation_list_is_read_whole_or_not_at_all() {
    let place = Place::new();
    place.put("authorities", format!("{}\n", key(AUTHORITY)));
    let path = place.path("revoked");
    KeyFiles::write_revocations(&path, &[list(1, &[1, 2, 3])]).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.lines().all(|line| line.len() <= 110), "{text}");
    let why = |text: &str| {
        place.put("revoked", text);
        place.fault()
    };
    let end = text.find("-----END").unwrap();
    assert!(
        why(&text[..end])
            .contains("line 2: expected -----END FARCALL REVOCATION LIST-----; found the end of the file")
    );
    assert!(
        why(&(text[..end].to_owned() + &text))
            .contains("expected -----END FARCALL REVOCATION LIST-----; found \"-----BEGIN")
    );
    assert!(why(&text.replace("AAAA", "AAAB")).contains("line 2: "), "{}", place.fault());
    assert!(why(&text.replace("AAAA", "****")).contains("found no base64"));
    let stranger = identity(OTHER).revoke(1, NOW, DAY, Revoked::default());
    KeyFiles::write_revocations(&path, &[list(1, &[]), stranger]).unwrap();
    assert!(place.fault().contains("expected a revocation list of a trusted authority"), "{}", place.fault());
    assert_eq!(KeyFiles::read_revocations(&path).unwrap().len(), 2);
    assert!(KeyFiles::read_revocations(&place.path("nothing")).unwrap().is_empty());
}

#[test]
fn what_is_no_file_or_too_large_is_refused_without_being_read() {
    let place = Place::new();
    fs::create_dir(place.path("policy")).unwrap();
    place.mode("policy", 0o755);
    assert!(place.fault().ends_with("policy: expected a file; found something else; put a text file there"));
    fs::remove_dir(place.path("policy")).unwrap();
    symlink("/dev/zero", place.path("policy")).unwrap();
    assert!(place.fault().contains("expected a file; found something else"));
    fs::remove_file(place.path("policy")).unwrap();
    place.put("policy", "");
    fs::OpenOptions::new().write(true).open(place.path("policy")).unwrap().set_len((16 << 20) + 1).unwrap();
    let expected =
        "DIR/policy: expected at most 16777216 bytes; found 16777217 bytes; remove lines that nobody needs";
    assert_eq!(place.fault(), expected);
}

#[test]
fn files_are_read_again_when_one_has_changed() {
    let place = Place::new();
    let (mut files, _) = KeyFiles::open(place.0.path()).unwrap();
    assert!(files.reload().is_none());
    place.put("authorized_keys", format!("{} alice\n", key(CLIENT)));
    assert_eq!(files.reload().unwrap().authorized_keys().count(), 1);
    assert!(files.reload().is_none());
    // The same size, in a new file.
    place.put("authorized_keys", format!("{} carol\n", key(CLIENT)));
    let keyring = files.reload().unwrap();
    assert_eq!(&**keyring.authorized_keys().next().unwrap().principal, "carol");
    fs::remove_file(place.path("authorized_keys")).unwrap();
    assert_eq!(files.reload().unwrap().authorized_keys().count(), 0);
    // A fault stays until it is mended.
    place.put("policy", "permit\n");
    assert!(files.reload().is_some() && files.reload().is_none() && files.faults().len() == 1);
    place.put("policy", "allow * *\n");
    assert!(files.reload().unwrap().policy().is_some() && files.faults().is_empty());
    fs::remove_file(place.path("identity")).unwrap();
    let keyring = files.reload().unwrap();
    assert_eq!(keyring.identity().public(), key(SERVER), "the identity that was read last goes on");
    assert!(files.faults()[0].to_string().contains("found no such file"));
}

#[test]
fn an_older_revocation_list_is_refused_and_so_is_none() {
    let place = Place::new();
    place.put("authorities", format!("{}\n", key(AUTHORITY)));
    let path = place.path("revoked");
    let put = |lists: &[RevocationList]| KeyFiles::write_revocations(&path, lists).unwrap();
    put(&[list(5, &[1])]);
    let (mut files, _) = KeyFiles::open(place.0.path()).unwrap();
    put(&[list(6, &[1, 2])]);
    assert!(files.reload().is_some());
    let expected = format!(
        "{}: expected a revocation list of {} with a serial of at least 6, which was loaded before; found ",
        path.display(),
        key(AUTHORITY)
    );
    let mut refused = |found: &str| {
        let keyring = files.reload().unwrap();
        let kept = keyring.revocations().next().unwrap();
        assert!(kept.serial() == 6 && kept.has_grant(2), "the newest list stays");
        let why = files.faults()[0].to_string();
        assert!(why.starts_with(&format!("{expected}{found}; ask the authority")), "{why}");
    };
    put(&[list(5, &[1])]);
    refused("serial 5");
    put(&[list(6, &[])]);
    refused("another list with this serial");
    fs::remove_file(&path).unwrap();
    refused("no list of this authority");
    put(&[list(6, &[1, 2])]);
    assert!(files.reload().is_some());
    // An authority that is no longer trusted takes its list along.
    place.put("authorities", "");
    fs::remove_file(&path).unwrap();
    assert!(files.reload().is_some());
}
