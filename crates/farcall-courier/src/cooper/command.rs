//! A program of the operator's, to which a connection is handed over.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{self, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use farcall::env::{Env, Source, Stream};

/// A command, and how many of its processes run.
pub(super) struct Command {
    path: PathBuf,
    arguments: Vec<OsString>,
    /// The most processes of all commands of the server.
    most: usize,
    running: Arc<AtomicUsize>,
}

/// A process that counts.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Command {
    pub(super) fn new(
        path: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        most: usize,
        running: &Arc<AtomicUsize>,
    ) -> Command {
        let arguments = arguments.into_iter().map(|argument| argument.as_ref().to_owned()).collect();
        Command { path: path.to_owned(), arguments, most, running: running.clone() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Starts the command with the connection as its standard input and output. The new process answers the
    /// activation. A thread waits for its end.
    ///
    /// # Errors
    /// Too many processes run, or the system's error.
    pub(super) fn start(&self, env: &dyn Env, stream: &dyn Stream) -> io::Result<()> {
        let most = self.most;
        let more = |running| (running < most).then_some(running + 1);
        if self.running.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return Err(io::Error::other(format!("{most} commands run already")));
        }
        let counted = Counted(self.running.clone());
        let (input, output) = sockets(stream)?;
        let child = process::Command::new(&self.path)
            .args(&self.arguments)
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(output))
            .spawn()?;
        let reaper = move || {
            let _counted = counted;
            let mut child = child;
            let _ = child.wait();
        };
        // If no thread can be started, the child runs on, and its entry stays in the system's table.
        let _ = env.spawn("courier-command", Box::new(reaper));
        Ok(())
    }
}

/// Returns two descriptors of a connection, in the state in which a process of its own expects them.
fn sockets(stream: &dyn Stream) -> io::Result<(OwnedFd, OwnedFd)> {
    let Source::Descriptor(descriptor) = stream.source() else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    // The time-outs are those of any socket, not of TCP alone.
    let socket = TcpStream::from(descriptor.try_clone_to_owned()?);
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(None)?;
    socket.set_write_timeout(None)?;
    let input = OwnedFd::from(socket);
    let output = input.try_clone()?;
    Ok((input, output))
}
