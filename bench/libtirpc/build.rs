//! Compiles the C side where libtirpc is installed; elsewhere the peer says that it cannot.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(libtirpc)");
    println!("cargo::rerun-if-changed=src/echo.c");
    let Ok(library) = pkg_config::probe_library("libtirpc") else { return };
    let mut build = cc::Build::new();
    // The casts of its functions are how this library is used.
    build.file("src/echo.c").includes(library.include_paths).flag_if_supported("-Wno-cast-function-type");
    build.opt_level(3).compile("echo");
    // Again, behind what needs it.
    println!("cargo::rustc-link-lib=tirpc");
    println!("cargo::rustc-cfg=libtirpc");
    println!("cargo::rustc-env=LIBTIRPC_VERSION={}", library.version);
}
