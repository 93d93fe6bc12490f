//! Runs nfs-ganesha. It needs fixed ports and a port mapper, so the bench runs in a network of its own.
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use farcall_bench_method::cannot;
use farcall_onc::Server;
use farcall_onc::rpcbind::{self, Mapper};
use tempfile::TempDir;

const PROGRAM: &str = "ganesha.nfsd";
const NFS_PORT: u16 = 2049;
const MOUNT_PORT: u16 = 20048;

/// The server, which runs until this is dropped.
pub struct Ganesha {
    child: Child,
    _mapping: Server,
    _directory: TempDir,
}

impl Ganesha {
    /// Returns the version that the server reports.
    pub fn version() -> String {
        let said = Command::new(PROGRAM).arg("-v").output().map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&said).rsplit('V').next().unwrap_or_default().trim().into()
    }

    /// Exports a directory as `/exported`, and waits until the server reports that it does.
    pub fn start(directory: TempDir) -> Result<Ganesha> {
        // The server registers at a port mapper, and ends if there is none.
        let mapping = Server::builder().mapper(&Mapper::default()).address("0.0.0.0:111".parse()?);
        fs::create_dir_all("/run/rpcbind")?;
        let mapping = mapping.unix(rpcbind::SOCKET).start().context("no port mapper")?;
        let configuration = directory.path().join("ganesha.conf");
        fs::write(&configuration, text(directory.path()))?;
        fs::create_dir_all("/run/ganesha")?;
        let mut command = Command::new(PROGRAM);
        command.arg("-F").arg("-f").arg(&configuration).args(["-L", "STDOUT", "-N", "NIV_EVENT", "-p"]);
        command
            .arg(directory.path().join("pid"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = match command.spawn() {
            Err(why) if why.kind() == ErrorKind::NotFound => return cannot("ganesha.nfsd is not installed"),
            spawned => spawned?,
        };
        let mut lines = BufReader::new(child.stdout.take().context("no pipe")?).lines();
        let ganesha = Ganesha { child, _mapping: mapping, _directory: directory };
        let mut last = String::new();
        while let Some(Ok(line)) = lines.next() {
            if line.contains("NFS SERVER INITIALIZED") {
                // A thread reads the server's later output, so that the server does not block.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(ganesha);
            }
            last = line;
        }
        bail!("it ended: {last}");
    }

    /// Returns the URL of a file that the server exports.
    pub fn url(&self, file: &str) -> String {
        format!("nfs://127.0.0.1/exported/{file}?nfsport={NFS_PORT}&mountport={MOUNT_PORT}")
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        // Both fail only if the server has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the configuration: only NFS version 3, and no waiting for clients of an earlier run of the server.
fn text(directory: &Path) -> String {
    format!(
        "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {NFS_PORT}; MNT_Port = {MOUNT_PORT};\n\
         Enable_NLM = false; Enable_RQUOTA = false; mount_path_pseudo = true; }}\n\
         NFSv4 {{ Graceless = true; }}\n\
         EXPORT {{ Export_Id = 1; Path = {}; Pseudo = /exported; Access_Type = RW;\n\
         Squash = No_Root_Squash; Protocols = 3; Transports = UDP, TCP; SecType = sys; FSAL {{ Name = VFS; }} }}\n",
        directory.display()
    )
}
