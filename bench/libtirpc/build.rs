//! Compiles the C side if libtirpc is installed. Otherwise the peer reports that it cannot take part.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(libtirpc)");
    println!("cargo::rerun-if-changed=src/echo.c");
    let Ok(library) = pkg_config::probe_library("libtirpc") else { return };
    let mut build = cc::Build::new();
    // The library's own interface requires casts between function types.
    build.file("src/echo.c").includes(library.include_paths).flag_if_supported("-Wno-cast-function-type");
    build.opt_level(3).compile("echo");
    // The library is named again, after the object files that need it.
    println!("cargo::rustc-link-lib=tirpc");
    println!("cargo::rustc-cfg=libtirpc");
    println!("cargo::rustc-env=LIBTIRPC_VERSION={}", library.version);
}
