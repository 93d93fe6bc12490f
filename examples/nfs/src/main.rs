//! The command. It serves a directory by NFS version 3, and lists and copies files of any NFS version 3
//! server.

#[cfg(target_os = "linux")]
mod command;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    command::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "farcall-nfs runs on Linux only: it finds files through /proc.");
    std::process::exit(1);
}
