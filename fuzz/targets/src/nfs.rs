//! Handles of NFS, as a server gets them from any client.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use farcall_nfs::Export;
use farcall_nfs::files::Files;
use farcall_nfs::protocol::nfs::*;

/// A directory that is exported, and the handles that were given out: its own, and that of a file.
struct Exported {
    export: Export,
    given: [Vec<u8>; 2],
}

fn exported() -> &'static Exported {
    static EXPORTED: OnceLock<Exported> = OnceLock::new();
    EXPORTED.get_or_init(|| {
        // This code: nothing here writes.
        let files = Files::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
        let root = files.root().bytes().to_vec();
        let export = Export::new(Arc::new(files));
        let what = Diropargs3 { dir: NfsFh3 { data: root.clone() }, name: "lib.rs".into() };
        let file = export.nfsproc3_lookup(&Lookup3args { what }).unwrap().into_ok().unwrap().object.data;
        Exported { export, given: [root, file] }
    })
}

/// Which of the handles, if any, is changed, and by what: another handle than those that were given out leads
/// nowhere.
pub fn nfs_handle(data: &[u8]) {
    let Some((base, change)) = data.split_first() else { return };
    let Exported { export, given } = exported();
    // No client sends a longer one: its type has no more.
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
