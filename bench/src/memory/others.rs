//! UCX and libfabric, measured by their own tools (`ucx_perftest`, `fi_pingpong`) if these are installed.
use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use farcall_bench_method::{Cannot, Options, Pin, Row, cannot};

use super::{Carrier, Memory};
use crate::field::Field;

const UCX: &str = "ucx_perftest";
const FABRIC: &str = "fi_pingpong";

/// One measurement by one of the tools.
struct Other {
    name: &'static str,
    tool: &'static str,
    transport: &'static str,
    operation: &'static str,
    /// The tool's name for it.
    test: &'static str,
    carrier: Carrier,
    bytes: usize,
}

const fn ucx(
    name: &'static str,
    transport: &'static str,
    operation: &'static str,
    test: &'static str,
) -> Other {
    let carrier = if matches!(transport.as_bytes(), b"tcp") { Carrier::Udp } else { Carrier::Mapped };
    Other {
        name,
        tool: UCX,
        transport,
        operation,
        test,
        carrier,
        bytes: if operation.len() == 3 { 8 } else { 32 },
    }
}

const fn fabric(name: &'static str, transport: &'static str, test: &'static str) -> Other {
    Other { name, tool: FABRIC, transport, operation: "ping-pong", test, carrier: Carrier::Udp, bytes: 32 }
}

/// Both tools poll. UCX's figures are medians, and those of its puts are one-way. Libfabric's are means.
const OTHERS: [Other; 8] = [
    ucx("ucx-get", "tcp", "read", "ucp_get"),
    ucx("ucx-put", "tcp", "write", "ucp_put_lat"),
    ucx("ucx-cswap", "tcp", "cas", "ucp_cswap"),
    ucx("ucx-get-posix", "posix", "read", "ucp_get"),
    ucx("ucx-put-posix", "posix", "write", "ucp_put_lat"),
    ucx("ucx-cswap-posix", "posix", "cas", "ucp_cswap"),
    fabric("libfabric-udp", "udp", "dgram"),
    fabric("libfabric-tcp", "tcp", "msg"),
];

/// Runs the tools that are installed, each alone.
pub fn rows(memory: &Memory, field: &mut Field, pin: Pin) -> Result<Vec<Row>> {
    let options = &memory.options;
    let wanted = |other: &&Other| {
        let named = options.peers.as_ref().is_none_or(|peers| peers.iter().any(|peer| peer == other.name));
        named && memory.transport.contains(&other.carrier)
    };
    let mut rows = Vec::new();
    for other in OTHERS.iter().filter(wanted) {
        match other.measure(options, pin) {
            Ok(us) => rows.push(other.row(us, pin)),
            Err(why) => field.leave_out(other.name, why)?,
        }
    }
    Ok(rows)
}

/// Returns the tool's output, if it ends in time.
fn within(mut child: Child) -> Result<Vec<u8>> {
    const LOOKS: usize = 500;
    for _ in 0..LOOKS {
        if child.try_wait()?.is_some() {
            return Ok(child.wait_with_output()?.stdout);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill()?;
    child.wait()?;
    cannot("it does not end")
}

impl Other {
    /// Returns the microseconds of one operation.
    fn measure(&self, options: &Options, pin: Pin) -> Result<f64> {
        /// The server needs some time before it listens.
        const TRIES: usize = 40;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let turns = options.block().calls;
        let mut server = self.serve(port, turns, pin)?;
        let mut said = Err(anyhow::anyhow!("{} was never asked", self.tool));
        for _ in 0..TRIES {
            std::thread::sleep(Duration::from_millis(50));
            said = self.ask(port, turns, pin);
            // A tool that hung will hang again, because it does not retransmit a lost datagram.
            if said.as_ref().is_err_and(|why| !why.is::<Cannot>()) {
                continue;
            }
            break;
        }
        let _ = server.kill();
        server.wait()?;
        said
    }

    fn command(&self, core: Option<usize>) -> Command {
        let mut command = Command::new(self.tool);
        command.env("UCX_TLS", format!("{},self", self.transport)).stdin(Stdio::null()).stderr(Stdio::null());
        if let (UCX, Some(core)) = (self.tool, core) {
            command.args(["-c", &core.to_string()]);
        }
        command
    }

    fn serve(&self, port: u16, turns: usize, pin: Pin) -> Result<Child> {
        let mut command = self.command(pin.cores().map(|cores| cores.1));
        match self.tool {
            UCX => command.args(["-p", &port.to_string()]),
            // The tool must be told in advance what it will receive.
            _ => {
                let (bytes, turns) = (self.bytes.to_string(), turns.to_string());
                command.args([
                    "-p",
                    self.transport,
                    "-e",
                    self.test,
                    "-S",
                    &bytes,
                    "-I",
                    &turns,
                    "-B",
                    &port.to_string(),
                ])
            }
        };
        match command.stdout(Stdio::null()).spawn() {
            Err(why) if why.kind() == ErrorKind::NotFound => {
                cannot(&format!("{} is not installed", self.tool))
            }
            spawned => Ok(spawned?),
        }
    }

    fn ask(&self, port: u16, turns: usize, pin: Pin) -> Result<f64> {
        let mut command = self.command(pin.cores().map(|cores| cores.0));
        let (port, turns, bytes) = (port.to_string(), turns.to_string(), self.bytes.to_string());
        match self.tool {
            UCX => command.args([
                "127.0.0.1",
                "-t",
                self.test,
                "-s",
                &bytes,
                "-n",
                &turns,
                "-w",
                "1000",
                "-v",
                "-p",
                &port,
            ]),
            _ => command.args([
                "-p",
                self.transport,
                "-e",
                self.test,
                "-S",
                &bytes,
                "-I",
                &turns,
                "-P",
                &port,
                "127.0.0.1",
            ]),
        };
        let said = String::from_utf8(within(command.stdout(Stdio::piped()).spawn()?)?)?;
        let last = said.lines().last().context("it said nothing")?;
        let figure = match self.tool {
            // iterations, the median …
            UCX => last.split(',').nth(1),
            // bytes, sent, acknowledged, total, time, MB/s, µs one way, …
            _ => last.split_whitespace().nth(6),
        };
        let figure: f64 = figure.with_context(|| format!("no figure in {last:?}"))?.parse()?;
        Ok(if self.tool == UCX { figure } else { 2.0 * figure })
    }

    fn row(&self, us: f64, pin: Pin) -> Row {
        Row {
            bench: "memory".into(),
            peer: self.name.into(),
            transport: Some(self.transport.into()),
            operation: Some(self.operation.into()),
            bytes: Some(self.bytes),
            pin: Some(if self.tool == UCX { pin } else { Pin::NONE }.to_string()),
            p50_us: Some(us),
            ..Row::default()
        }
    }
}
