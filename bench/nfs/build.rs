//! Compiles the C side if libnfs is installed. Otherwise the peers report that they cannot take part.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(libnfs)");
    for file in ["src/read.c", "src/day.c"] {
        println!("cargo::rerun-if-changed={file}");
    }
    let is_linux = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux");
    let Ok(library) = pkg_config::probe_library("libnfs") else { return };
    if !is_linux {
        return;
    }
    cc::Build::new()
        .files(["src/read.c", "src/day.c"])
        .includes(library.include_paths)
        .opt_level(3)
        .compile("read");
    // The library is named again, after the object files that need it.
    println!("cargo::rustc-link-lib=nfs");
    println!("cargo::rustc-cfg=libnfs");
    println!("cargo::rustc-env=LIBNFS_VERSION={}", library.version);
}
