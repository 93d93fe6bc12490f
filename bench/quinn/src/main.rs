//! QUIC by quinn. Each call has a stream of its own, on one connection.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use bytes::Bytes;
use farcall_bench_method::alloc::Counting;
use farcall_bench_method::{Calling, Mode, Peer, SLOW, Serving, Setup, cannot, version_of};
use farcall_bench_tokio::{Call, Client, Threads};
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream, ServerConfig, TransportConfig};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

/// The maximum number of streams at the same time: more than the outstanding calls of any bench.
const STREAMS: u32 = 16_384;
/// The windows of a stream and of a connection, and the maximum length of a request or a result, in bytes.
const WINDOW: u32 = 64 << 20;
/// First byte of a request whose other bytes are the result.
const ECHO: u8 = 0;
/// First byte of a request whose other bytes are the result, which is sent after [`SLOW`].
const SLOW_ECHO: u8 = 1;
/// First byte of a request for the data of the server.
const FETCH: u8 = 2;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    farcall_bench_method::agent::run(|name| (name == "quinn").then_some(Box::new(Quinn)))
}

struct Quinn;

impl Peer for Quinn {
    fn transport(&self) -> &'static str {
        "quic"
    }

    fn version(&self) -> String {
        version_of("quinn")
    }

    /// Starts the server. The address that it announces is the socket's address, a slash, and the certificate
    /// in hexadecimal digits.
    fn serve(&self, setup: &Setup) -> Result<Box<dyn Serving>> {
        if setup.mode == Mode::Spin {
            return cannot("it does not spin");
        }
        let listen = async || {
            let own = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
            let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
            let certificate = CertificateDer::from(own.cert);
            let mut config = ServerConfig::with_single_cert(vec![certificate.clone()], key.into())?;
            config.transport_config(transport());
            let endpoint = Endpoint::server(config, "127.0.0.1:0".parse()?)?;
            let address = format!("{}/{}", endpoint.local_addr()?, hex(&certificate));
            Ok((endpoint, address))
        };
        let data = Bytes::from(vec![7; setup.bytes]);
        farcall_bench_tokio::serve(Threads::One, listen, async move |endpoint| {
            while let Some(incoming) = endpoint.accept().await {
                let (connection, data) = (incoming.await?, data.clone());
                tokio::spawn(async move {
                    while let Ok((send, receive)) = connection.accept_bi().await {
                        tokio::spawn(answer(send, receive, data.clone()));
                    }
                });
            }
            Ok(())
        })
    }

    fn connect(&self, setup: &Setup, address: &str) -> Result<Box<dyn Calling>> {
        farcall_bench_tokio::connect(setup, async || {
            let (address, certificate) = address.split_once('/').context("no certificate in the address")?;
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from(bytes_of(certificate)?))?;
            let mut config = ClientConfig::with_root_certificates(Arc::new(roots))?;
            config.transport_config(transport());
            let mut endpoint = Endpoint::client("127.0.0.1:0".parse()?)?;
            endpoint.set_default_client_config(config);
            let connection = endpoint.connect(address.parse()?, "localhost")?.await?;
            let request = |what: u8| [vec![what], vec![7; setup.bytes]].concat().into();
            Ok(Caller { connection, echo: request(ECHO), slow: request(SLOW_ECHO), _endpoint: endpoint })
        })
    }
}

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    // A connection must stay open while other peers are measured.
    transport.max_idle_timeout(None);
    transport.max_concurrent_bidi_streams(STREAMS.into());
    transport.stream_receive_window(WINDOW.into()).receive_window(WINDOW.into()).send_window(WINDOW.into());
    Arc::new(transport)
}

/// Executes the call whose request arrives on a stream, and sends the result.
async fn answer(mut send: SendStream, mut receive: RecvStream, data: Bytes) -> Result<()> {
    let request = Bytes::from(receive.read_to_end(WINDOW as usize).await?);
    let (&what, _) = request.split_first().context("the request is empty")?;
    match what {
        FETCH => send.write_chunk(data).await?,
        what => {
            if what == SLOW_ECHO {
                tokio::time::sleep(SLOW).await;
            }
            send.write_chunk(request.slice(1..)).await?;
        }
    }
    Ok(send.finish()?)
}

#[derive(Clone)]
struct Caller {
    connection: Connection,
    echo: Bytes,
    slow: Bytes,
    _endpoint: Endpoint,
}

impl Client for Caller {
    async fn call(&self, call: Call) -> Result<()> {
        let request = match call {
            Call::Null | Call::Echo => self.echo.clone(),
            Call::Slow => self.slow.clone(),
            Call::Fetch(_) => Bytes::from_static(&[FETCH]),
        };
        let (mut send, mut receive) = self.connection.open_bi().await?;
        send.write_chunk(request).await?;
        send.finish()?;
        std::hint::black_box(receive.read_to_end(WINDOW as usize).await?);
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(hex: &str) -> Result<Vec<u8>> {
    let byte =
        |at| Ok(u8::from_str_radix(hex.get(at..at + 2).context("a hexadecimal digit is missing")?, 16)?);
    (0..hex.len()).step_by(2).map(byte).collect()
}
