//! The fuzz target for the file handles that an NFS server gets from any client.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use farcall_nfs::Export;
use farcall_nfs::files::Files;
use farcall_nfs::protocol::nfs::*;

/// An exported directory, and the handles that the server gave out: of the directory, and of a file in it.
struct Exported {
    export: Export,
    given: [Vec<u8>; 2],
}

fn exported() -> &'static Exported {
    static EXPORTED: OnceLock<Exported> = OnceLock::new();
    EXPORTED.get_or_init(|| {
        // The exported directory is this target's source, because the target only reads.
        let files = Files::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
        let root = files.root().bytes().to_vec();
        let export = Export::new(Arc::new(files));
        let what = Diropargs3 { dir: NfsFh3 { data: root.clone() }, name: "lib.rs".into() };
        let file = export.nfsproc3_lookup(&Lookup3args { what }).unwrap().into_ok().unwrap().object.data;
        Exported { export, given: [root, file] }
    })
}

/// Calls an NFS server with a file handle. The first byte of the input chooses a handle that was given out,
/// which the other bytes change; or it chooses none, and the other bytes are the handle. The server must
/// refuse every handle that it did not give out.
pub fn nfs_handle(data: &[u8]) {
    let Some((base, change)) = data.split_first() else { return };
    let Exported { export, given } = exported();
    // A handle has at most 64 bytes, by its type.
    let mut data = change[..change.len().min(64)].to_vec();
    if let Some(base) = given.get(usize::from(*base)) {
        data.resize(base.len(), 0);
        data.iter_mut().zip(base).for_each(|(byte, base)| *byte ^= base);
    }
    let handle = NfsFh3 { data };
    let known = given.contains(&handle.data);
    let found = export.nfsproc3_getattr(&Getattr3args { object: handle.clone() }).unwrap().into_ok();
    assert_eq!(found.is_ok(), known, "{handle:?}");
    let what = Diropargs3 { dir: handle.clone(), name: "lib.rs".into() };
    let found = export.nfsproc3_lookup(&Lookup3args { what }).unwrap().into_ok();
    assert_eq!(found.is_ok(), handle.data == given[0], "{handle:?}");
    let read =
        export.nfsproc3_read(&Read3args { file: handle.clone(), offset: 0, count: 16 }).unwrap().into_ok();
    assert_eq!(read.is_ok(), handle.data == given[1], "{handle:?}");
}
