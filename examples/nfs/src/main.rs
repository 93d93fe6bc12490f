//! The command: serves a directory by NFS version 3, lists and copies files of any server that speaks it.

#[cfg(target_os = "linux")]
mod command;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    command::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("farcall-nfs runs on Linux only: it finds files through /proc.");
    std::process::exit(1);
}
