//! The values that are encoded and decoded: a directory, and arrays.

/// The types of NFS version 3 (RFC 1813).
pub mod nfs {
    farcall::include_x!("../../crates/farcall-onc/x/nfs3.x");
}

/// The types of arrays of structs.
pub mod array {
    farcall::include_x!("src/array.x");
}

use array::{Account, Point};
use nfs::{
    Dirlistplus3, Entryplus3, Fattr3, Ftype3, NfsFh3, Nfstime3, Readdirplus3res, Readdirplus3resok, Specdata3,
};

/// Returns a server's answer to a READDIRPLUS: names of 5 to 20 letters, attributes and handles.
pub fn listing(entries: u64) -> Readdirplus3res {
    let entry = |fileid| Entryplus3 {
        fileid,
        name: format!("file{}{fileid}", "-of-some-length"[..(fileid % 15) as usize].to_owned()).into(),
        cookie: fileid + 1,
        name_attributes: Some(attributes(fileid)),
        name_handle: Some(NfsFh3 { data: vec![fileid as u8; 32] }),
    };
    Readdirplus3res::Nfs3Ok(Readdirplus3resok {
        dir_attributes: Some(attributes(0)),
        cookieverf: [7; 8],
        reply: Dirlistplus3 { entries: (1..=entries).map(entry).collect(), eof: true },
    })
}

fn attributes(fileid: u64) -> Fattr3 {
    let time = Nfstime3 { seconds: 1_700_000_000 + fileid as u32, nseconds: 5 };
    Fattr3 {
        r#type: Ftype3::Nf3reg,
        mode: 0o644,
        nlink: 1,
        uid: 1000,
        gid: 1000,
        size: fileid << 12,
        used: fileid << 12,
        rdev: Specdata3 { specdata1: 0, specdata2: 0 },
        fsid: 1,
        fileid,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

pub fn points(count: i32) -> Vec<Point> {
    (0..count).map(|x| Point { x, y: -x, when: x as u64, weight: x.into() }).collect()
}

pub fn accounts(count: u32) -> Vec<Account> {
    let account =
        |number| Account { number, owner: format!("owner {number}").into(), balance: -1, open: true };
    (0..count).map(account).collect()
}
