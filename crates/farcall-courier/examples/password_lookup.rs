//! The PasswordLookup of the Courier literature: serves this machine's accounts, or looks one up.
//!
//! ```text
//! cargo run -p farcall-courier --example password_lookup -- serve 127.0.0.1:5000
//! cargo run -p farcall-courier --example password_lookup -- tcp://127.0.0.1:5000 root
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;

use farcall_courier::Server;
use farcall_courier::xdr::ByteString;
use lookup::{LookupUidError, LookupUserError, Passwd, PasswordLookup};

mod lookup {
    farcall_courier::include_cr!("../farcall/tests/cr/PasswordLookup.cr");
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(address),
        [address, user] => look_up(address, user),
        _ => Err("wanted: serve HOST:PORT, or tcp://HOST:PORT USER".into()),
    }
}

fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let accounts = Accounts(std::fs::read("/etc/passwd")?);
    let server = Server::builder().program::<dyn PasswordLookup>(Arc::new(accounts));
    let server = server.tcp(address.parse()?).start()?;
    println!("serves at tcp://{}", server.addresses()[0]);
    server.wait();
    Ok(())
}

fn look_up(address: &str, user: &str) -> Result<(), Box<dyn Error>> {
    let accounts = farcall_courier::import::<dyn PasswordLookup>(address)?;
    match accounts.lookup_user(&user.into()) {
        Ok(Passwd { pw_uid, pw_gid, pw_dir, pw_shell, .. }) => {
            println!("{user} is {pw_uid} of group {pw_gid}, at home in {pw_dir}, with {pw_shell}");
            Ok(())
        }
        Err(why) if why.declared() == Some(&LookupUserError::NoSuchUser) => {
            Err(format!("nobody is called {user}").into())
        }
        Err(why) => Err(why.into()),
    }
}

/// The content of a password file.
struct Accounts(Vec<u8>);

impl Accounts {
    /// Returns the first account for which `is` holds, given the fields of its line.
    fn find(&self, is: impl Fn(&[&[u8]]) -> bool) -> Option<Passwd> {
        self.0.split(|byte| *byte == b'\n').find_map(|line| {
            let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
            let [name, password, uid, gid, gecos, home, shell] = fields[..] else { return None };
            let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse().ok();
            is(&fields).then_some(())?;
            let text = |bytes: &[u8]| ByteString::from(bytes.to_vec());
            Some(Passwd {
                pw_name: text(name),
                pw_passwd: text(password),
                pw_uid: number(uid)?,
                pw_gid: number(gid)?,
                pw_quota: 0,
                pw_comment: text(b""),
                pw_gecos: text(gecos),
                pw_dir: text(home),
                pw_shell: text(shell),
            })
        })
    }
}

impl PasswordLookup for Accounts {
    fn lookup_uid(&self, uid: u16) -> farcall_courier::Result<Passwd, LookupUidError> {
        let uid = uid.to_string();
        let found = self.find(|fields| fields[2] == uid.as_bytes());
        found.ok_or_else(|| LookupUidError::NoSuchUser.into())
    }

    fn lookup_user(&self, user: &ByteString) -> farcall_courier::Result<Passwd, LookupUserError> {
        self.find(|fields| fields[0] == &user[..]).ok_or_else(|| LookupUserError::NoSuchUser.into())
    }
}
