//! The HTTP server: accepts connections, bounds their number, and cuts clients that are slow.

use std::convert::Infallible;
use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::Duration;

use farcall::env::is_of_one_connection;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_io_timeout::TimeoutStream;

use super::Settings;
use super::api::{self, Site};

/// The most bytes of a request's line and headers.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// The most headers of a request.
const MAX_HEADERS: usize = 64;

/// How long to wait after an error of `accept`, which is mostly that this process has no file descriptor
/// left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until it is dropped.
pub(super) async fn serve(listener: StdListener, site: Arc<Site>, settings: Settings) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let places = Arc::new(Semaphore::new(settings.max_connections));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(why) if is_of_one_connection(&why) => continue,
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // A client beyond the bound is told so at once by the end of its connection.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        tokio::spawn(attend(stream, place, Arc::clone(&site), settings.clone()));
    }
}

/// Answers the requests of one connection.
async fn attend(stream: TcpStream, _place: OwnedSemaphorePermit, site: Arc<Site>, settings: Settings) {
    let _ = stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(settings.write_time));
    let answer = service_fn(move |request| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(api::answer(request, site).await) }
    });
    // How a connection ends is no concern of anybody's: the page connects again.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.request_time)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(Box::pin(stream)), answer)
        .await;
}
