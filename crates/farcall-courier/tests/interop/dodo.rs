//! Dodo, an XNS server in Java, answers our client.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use farcall::{Kind, Ran};
use farcall_courier::Builder;

use crate::counterparts::skip;
use crate::kind;
use addresses::{Addresses, NetworkAddress};
use credentials::{CheckSimpleCredentialsError, Credentials, Given};

mod addresses {
    farcall_courier::include_cr!("tests/interop/Addresses2.cr");
}

mod credentials {
    farcall_courier::include_cr!("tests/interop/Credentials2.cr");
}

/// A version of the Clearinghouse that nobody has.
#[farcall::interface(program = 2, version = 77)]
trait Later {
    #[procedure(0)]
    fn retrieve_addresses(&self) -> farcall::Result<()>;
}

/// A program that nobody has.
#[farcall::interface(program = 4242, version = 1)]
trait Absent {
    #[procedure(0)]
    fn nothing(&self) -> farcall::Result<()>;
}

/// Returns a name (organization, domain, object) as the words of Courier's strings.
fn words(name: [&str; 3]) -> Vec<u16> {
    let mut bytes = Vec::new();
    for part in name {
        bytes.extend((part.len() as u16).to_be_bytes());
        bytes.extend(part.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(2), 0);
    }
    bytes.as_chunks::<2>().0.iter().map(|pair| u16::from_be_bytes(*pair)).collect()
}

/// Returns the hash of a password by which simple credentials are verified.
fn hashed(password: &str) -> u16 {
    password.bytes().fold(0, |hash: u64, byte| (hash * 65_536 + u64::from(byte)) % 65_357) as u16
}

#[test]
fn dodos_services_answer_our_client() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let has_checkout =
        std::env::var_os("FARCALL_DODO").is_some() || root.join("target/dodo/checkout").exists();
    if !has_checkout {
        return skip("dodo: there is no checkout of it (scripts/dodo)");
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("courier").display().to_string();
    let mut command = Command::new(root.join("scripts/dodo"));
    // It ends with its input.
    let mut dodo = command.arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(dodo.stdout.take().unwrap()).read_line(&mut said).unwrap();
    if let Some(why) = said.trim_end().strip_prefix("skipped: ") {
        dodo.wait().unwrap();
        return skip(why);
    }
    assert_eq!(said.trim_end(), format!("listening {path}"));
    let address = format!("unix:{path}");
    for builder in [Builder::default(), Builder::default().version_2()] {
        call_all(&builder, &address);
    }
    drop(dodo.stdin.take());
    dodo.wait().unwrap();
}

fn call_all(builder: &Builder, address: &str) {
    let here = NetworkAddress { network: [0, 0x041a], host: [0x1000, 0xbb10, 0x1101], socket: 0 };
    let addresses = builder.import::<dyn Addresses>(address).unwrap();
    assert_eq!(addresses.retrieve_addresses().unwrap().0, [here]);
    assert_eq!(addresses.retrieve_addresses().unwrap().0, [here]);

    let credentials = builder.import::<dyn Credentials>(address).unwrap();
    let check = |name, password| {
        let given = Given { r#type: 0, value: words(["hawala", "dev", name]) };
        credentials.check_simple_credentials(&given, &[hashed(password)])
    };
    assert!(check("guest", "guest").unwrap());
    assert!(!check("guest", "x").unwrap());
    let nobody = check("nobody", "x").unwrap_err();
    assert!(matches!(nobody.declared(), Some(CheckSimpleCredentialsError::CallError { .. })), "{nobody}");

    let later = builder.import::<dyn Later>(address).unwrap().retrieve_addresses().unwrap_err();
    assert_eq!((kind(&later), later.ran()), (Kind::Mismatch, Ran::No));
    let absent = builder.import::<dyn Absent>(address).unwrap().nothing().unwrap_err();
    assert_eq!((kind(&absent), absent.ran()), (Kind::NotExported, Ran::No));
}
