//! Files that the command `farcall get` and `farcall put` copy. They lie in memory (tmpfs).
use std::fs::{self, File};
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use farcall::names::Memory;
use farcall::{Export, Runtime};
use farcall_file_access::{Directory, FileAccess};
use tempfile::TempDir;

use super::kinds::Kind;
use super::side;

/// Where the files lie.
const MEMORY: &str = "/dev/shm";
/// The link to the command, in the directory of the files.
const COMMAND: &str = "farcall";
/// The served directory, in the same directory.
const SERVED: &str = "served";

/// Makes a directory with a file for each transfer, and a link to the command.
pub fn prepare(kinds: &[Kind], command: Option<&Path>) -> Result<TempDir> {
    let directory = tempfile::tempdir_in(MEMORY).with_context(|| format!("no files in {MEMORY}"))?;
    let served = directory.path().join(SERVED);
    fs::create_dir(&served)?;
    for kind in kinds.iter().filter(|kind| kind.is_by_command()) {
        let mut file = File::create(served.join(kind.to_string()))?;
        std::io::copy(&mut std::io::repeat(7).take(kind.bytes()), &mut file)?;
    }
    if let Some(command) = command {
        let command = command.canonicalize().with_context(|| format!("no {}", command.display()))?;
        std::os::unix::fs::symlink(command, directory.path().join(COMMAND))?;
    }
    Ok(directory)
}

/// Serves the files as `farcall serve --writable` does.
pub fn serve(address: SocketAddr, files: &Path) -> Result<Export> {
    let directory = Directory::open(files.join(SERVED))?.writable(u64::MAX);
    let runtime = Runtime::builder().registry(Memory::new()).shared_memory(false).address(address).open();
    Ok(runtime.build()?.export::<dyn FileAccess>("FileAccess", Arc::new(directory))?)
}

/// Copies the file by the command as often as `next` returns true. Each time is a process.
pub fn run(url: &str, files: &Path, kind: Kind, mut next: impl FnMut() -> bool) -> Result<()> {
    let (command, name) = (files.join(COMMAND), kind.to_string());
    let path = |path: PathBuf| path.into_os_string().into_string().ok().context("a path is not UTF-8");
    let (served, copy) = (path(files.join(SERVED).join(&name))?, path(files.join("copy"))?);
    while next() {
        match kind {
            Kind::Get(_) => side::command(&command, &["get", &name, &copy, "--force", "--from", url])?,
            Kind::Put(_) => side::command(&command, &["put", &served, "stored", "--force", "--to", url])?,
            _ => bail!("the command moves only files"),
        }
    }
    Ok(())
}
