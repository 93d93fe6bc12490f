//! Decides which requests are answered: those of the page itself, from the browser of the person who has the
//! token.

use std::io;

use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::http::request::Parts;

/// The random bytes in a token.
const TOKEN_BYTES: usize = 32;

/// The port of a URL `http:` that names none.
const HTTP_PORT: u16 = 80;

/// Why a request is refused.
pub(super) type Refusal = (StatusCode, &'static str);

/// Which requests are answered.
pub(super) struct Admission {
    hosts: Vec<String>,
    token: String,
}

impl Admission {
    /// Admits requests to this port of the loopback interface that have this token.
    pub(super) fn new(port: u16, token: &str) -> Admission {
        let names = ["127.0.0.1", "[::1]", "localhost"];
        let mut hosts: Vec<String> = names.iter().map(|name| format!("{name}:{port}")).collect();
        if port == HTTP_PORT {
            // (Browsers leave the usual port out, RFC 9110, 4.2.1.)
            hosts.extend(names.map(str::to_owned));
        }
        Admission { hosts, token: token.to_owned() }
    }

    /// Checks what every request must have.
    ///
    /// `Host` must name the loopback interface. Otherwise a page of another site, whose DNS name points at
    /// 127.0.0.1, would be of one origin with this server, and could read its answers. `Origin`, which
    /// browsers send with each request that changes something, must be this server.
    pub(super) fn admit(&self, request: &Parts) -> Result<(), Refusal> {
        // A request to a proxy names the host in the request line, where `Host` would not be looked at.
        if request.uri.authority().is_some() {
            return Err((StatusCode::BAD_REQUEST, "this server is not a proxy"));
        }
        let host =
            single(&request.headers, HOST)?.ok_or((StatusCode::BAD_REQUEST, "the request has no Host"))?;
        if !self.hosts.iter().any(|ours| ours.eq_ignore_ascii_case(host)) {
            return Err((StatusCode::MISDIRECTED_REQUEST, "the request's Host is not this server's address"));
        }
        let Some(origin) = single(&request.headers, ORIGIN)? else { return Ok(()) };
        match origin.strip_prefix("http://") {
            Some(same) if same.eq_ignore_ascii_case(host) => Ok(()),
            _ => Err((StatusCode::FORBIDDEN, "the request comes from a page of another origin")),
        }
    }

    /// Checks what a request to `/api/` must have besides: the token, and no sign of another site.
    pub(super) fn admit_to_api(&self, request: &Parts) -> Result<(), Refusal> {
        let site = single(&request.headers, HeaderName::from_static("sec-fetch-site"))?;
        if site.is_some_and(|site| site != "same-origin") {
            return Err((StatusCode::FORBIDDEN, "the request comes from a page of another origin"));
        }
        let given = single(&request.headers, AUTHORIZATION)?.and_then(|value| value.strip_prefix("Bearer "));
        match given {
            Some(given) if equal_in_constant_time(given.as_bytes(), self.token.as_bytes()) => Ok(()),
            Some(_) => {
                Err((StatusCode::UNAUTHORIZED, "the token is wrong: open the URL that the program printed"))
            }
            None => Err((
                StatusCode::UNAUTHORIZED,
                "the request has no token: open the URL that the program printed",
            )),
        }
    }
}

/// Returns a new token.
///
/// # Errors
/// If the system gives no random bytes.
pub(super) fn new_token() -> io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(format!("no random bytes: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns a header's value; refuses a request that has several, which two readers might read differently.
fn single(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err((StatusCode::BAD_REQUEST, "the request has a header twice"));
    }
    value.to_str().map(Some).map_err(|_| (StatusCode::BAD_REQUEST, "a header of the request is not text"))
}

/// Compares without telling, by the time it takes, how many bytes are right.
fn equal_in_constant_time(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |differences, (a, b)| differences | (a ^ b));
    one.len() == other.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn admits(port: u16, host: &str, origin: Option<&str>) -> bool {
        let mut request = Request::builder().uri("/").header(HOST, host);
        if let Some(origin) = origin {
            request = request.header(ORIGIN, origin);
        }
        Admission::new(port, "token").admit(&request.body(()).unwrap().into_parts().0).is_ok()
    }

    #[test]
    fn a_host_without_a_port_is_the_usual_one() {
        for name in ["127.0.0.1", "[::1]", "localhost"] {
            let origin = format!("http://{name}");
            assert!(admits(80, name, None) && admits(80, name, Some(&origin)), "{name}");
            assert!(admits(80, &format!("{name}:80"), None), "{name}");
            assert!(!admits(8080, name, None) && !admits(8080, name, Some(&origin)), "{name}");
            assert!(!admits(80, name, Some("http://evil.example")), "{name}");
        }
        assert!(!admits(80, "evil.example", None) && !admits(80, "localhost.evil.example", None));
    }
}
