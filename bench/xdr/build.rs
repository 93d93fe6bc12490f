//! Runs rpcgen on the same files, and compiles its C, if rpcgen and libtirpc are installed.
use std::path::{Path, PathBuf};
use std::process::Command;

const FILES: [&str; 2] = ["../../crates/farcall-onc/x/nfs3.x", "src/array.x"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(libtirpc)");
    println!("cargo::rerun-if-changed=src/xdr.c");
    FILES.iter().for_each(|file| println!("cargo::rerun-if-changed={file}"));
    let Ok(library) = pkg_config::probe_library("libtirpc") else { return };
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where"));
    let mut build = cc::Build::new();
    for file in FILES {
        let Some(c) = rpcgen(Path::new(file), &out) else { return };
        build.file(c);
    }
    build.file("src/xdr.c").include(&out).includes(library.include_paths).warnings(false);
    build.opt_level(3).compile("xdr");
    // The library is named again, after the object files that need it.
    println!("cargo::rustc-link-lib=tirpc");
    println!("cargo::rustc-cfg=libtirpc");
    println!("cargo::rustc-env=LIBTIRPC_VERSION={}", library.version);
}

/// Returns the C file with the routines that rpcgen generates from a file. rpcgen names the header after the
/// given path.
fn rpcgen(file: &Path, out: &Path) -> Option<PathBuf> {
    let stem = file.file_stem()?.to_str()?;
    std::fs::copy(file, out.join(format!("{stem}.x"))).ok()?;
    for (option, name) in [("-h", format!("{stem}.h")), ("-c", format!("{stem}_xdr.c"))] {
        let _ = std::fs::remove_file(out.join(&name));
        let mut made = Command::new("rpcgen");
        made.args(["-C", "-N", option, "-o", &name, &format!("{stem}.x")]).current_dir(out);
        made.status().ok().filter(|status| status.success())?;
    }
    Some(out.join(format!("{stem}_xdr.c")))
}
