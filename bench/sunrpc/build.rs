//! Compiles the C programs, if there is a compiler; with rpcgen's stubs, if there are rpcgen and libtirpc.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rustc-check-cfg=cfg(c)");
    println!("cargo::rustc-check-cfg=cfg(libtirpc)");
    for file in ["cost.x", "local.c", "callee.c", "custom.c", "sun.c"] {
        println!("cargo::rerun-if-changed=src/{file}");
    }
    let mut build = cc::Build::new();
    build.opt_level(2).files(["src/local.c", "src/callee.c", "src/custom.c"]);
    if build.try_compile("custom").is_err() {
        return;
    }
    println!("cargo::rustc-cfg=c");
    println!("cargo::rustc-env=C_COMPILER={}", compiler(&build));
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where"));
    let Ok(library) = pkg_config::Config::new().cargo_metadata(false).probe("libtirpc") else { return };
    let Some(stubs) = rpcgen(&out) else { return };
    let mut build = cc::Build::new();
    build.opt_level(2).file("src/sun.c").files(stubs).include(&out).includes(library.include_paths);
    if build.warnings(false).try_compile("sun").is_err() {
        return;
    }
    link(&library.link_paths);
    println!("cargo::rustc-cfg=libtirpc");
    println!("cargo::rustc-env=LIBTIRPC_VERSION={}", library.version);
}

/// Links the static library if there is one, with the library that it needs for GSS: it has the names of all
/// functions, for profiles.
fn link(paths: &[PathBuf]) {
    const GSS: &str = "libgssapi_krb5.so.2";
    let architecture = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let usual = Path::new("/usr/lib").join(format!("{architecture}-linux-gnu"));
    let mut paths = paths.iter().chain([&usual]);
    let has = |path: &&PathBuf| ["libtirpc.a", GSS].iter().all(|library| path.join(library).exists());
    match paths.find(has) {
        Some(path) => {
            println!("cargo::rustc-link-search=native={}", path.display());
            println!("cargo::rustc-link-lib=static=tirpc");
            println!("cargo::rustc-link-lib=dylib:+verbatim={GSS}");
        }
        None => println!("cargo::rustc-link-lib=tirpc"),
    }
}

/// Returns the first line of what the compiler says about itself.
fn compiler(build: &cc::Build) -> String {
    let version = build.get_compiler().to_command().arg("--version").output();
    let text = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

/// Returns the C files with the stubs of client and server.
fn rpcgen(out: &Path) -> Option<[PathBuf; 2]> {
    std::fs::copy("src/cost.x", out.join("cost.x")).ok()?;
    for (option, name) in [("-h", "cost.h"), ("-l", "cost_clnt.c"), ("-m", "cost_svc.c")] {
        // rpcgen does not overwrite.
        let _ = std::fs::remove_file(out.join(name));
        let mut made = Command::new("rpcgen");
        let made = made.args(["-C", "-N", option, "-o", name, "cost.x"]).current_dir(out).status();
        made.ok().filter(|status| status.success())?;
    }
    Some(["cost_clnt.c", "cost_svc.c"].map(|name| out.join(name)))
}
