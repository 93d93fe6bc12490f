//! What the server refuses: requests without the token, of other origins, under other names; too much, too slow.

use std::io::{Read, Write};
use std::time::Duration;

use farcall_olympus::model::Graph;
use farcall_olympus::page::{Page, Settings};

use crate::http::{Answer, connect, exchange, request};
use crate::stand_in::StandIn;

const START: &str = r#"{"do":"resume"}"#;

/// Sends the command to start with some headers changed: each name stands for one header, `""` leaves it out.
fn start_with(page: &Page, changes: &[(&str, &str)]) -> Answer {
    let host = page.address().to_string();
    let token = format!("Bearer {}", page.token());
    let usual = [("Host", host.as_str()), ("Authorization", &token), ("Content-Type", "application/json")];
    let kept = usual.into_iter().filter(|(name, _)| !changes.iter().any(|(changed, _)| changed == name));
    let changed = changes.iter().copied().filter(|(_, value)| !value.is_empty());
    let headers: Vec<_> = kept.chain(changed).collect();
    exchange(page.address(), &request("POST /api/command", &headers, START))
}

#[test]
fn only_requests_of_the_page_are_answered() {
    let (run, page) = StandIn::serve(Graph::default(), Settings::default());
    let port = page.address().port();
    let other_port = format!("http://127.0.0.1:{}", port ^ 1);
    let refused: [(&[(&str, &str)], u16); 15] = [
        (&[("Authorization", "")], 401),
        (&[("Authorization", "Bearer 00")], 401),
        (&[("Authorization", page.token())], 401),
        (&[("Authorization", &format!("Bearer {}0", page.token()))], 401),
        (&[("Authorization", &format!("Bearer {}", page.token().replace(char::is_numeric, "f")))], 401),
        (&[("Origin", "http://evil.example")], 403),
        (&[("Origin", &other_port)], 403),
        (&[("Origin", "null")], 403),
        (&[("Origin", &format!("https://127.0.0.1:{port}"))], 403),
        (&[("Sec-Fetch-Site", "cross-site")], 403),
        (&[("Sec-Fetch-Site", "same-site")], 403),
        (&[("Host", "")], 400),
        // A DNS name that points at 127.0.0.1.
        (&[("Host", &format!("evil.example:{port}"))], 421),
        (&[("Host", "127.0.0.1")], 421),
        (&[("Content-Type", "text/plain")], 415),
    ];
    for (changes, status) in refused {
        assert_eq!(start_with(&page, changes).status, status, "{changes:?}");
    }
    assert_eq!(run.calls(), 0);

    let same_origin = format!("http://localhost:{port}");
    for allowed in [&[][..], &[("Host", &*format!("localhost:{port}")), ("Origin", &same_origin)]] {
        assert_eq!(start_with(&page, allowed).status, 200, "{allowed:?}");
    }
    assert_eq!(run.calls(), 2);
}

#[test]
fn a_request_is_refused_that_two_readers_would_read_differently() {
    let (run, page) = StandIn::serve(Graph::default(), Settings::default());
    let (address, token) = (page.address(), page.token());
    let head =
        format!("Host: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n");
    let length = START.len();
    for request in [
        format!(
            "POST http://{address}/api/command HTTP/1.1\r\n{head}Connection: close\r\nContent-Length: {length}\r\n\r\n{START}"
        ),
        format!(
            "POST /api/command HTTP/1.1\r\n{head}Host: evil.example\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{START}"
        ),
        format!(
            "POST /api/command HTTP/1.1\r\n{head}Content-Length: {length}\r\nContent-Length: 1\r\n\r\n{START}"
        ),
    ] {
        assert_eq!(exchange(address, request.as_bytes()).status, 400, "{request}");
    }
    assert_eq!(run.calls(), 0);
}

#[test]
fn a_get_changes_nothing_and_other_methods_are_refused() {
    let (run, page) = StandIn::serve(Graph::default(), Settings::default());
    let (host, token) = (page.address().to_string(), format!("Bearer {}", page.token()));
    let headers = [("Host", host.as_str()), ("Authorization", &token), ("Content-Type", "application/json")];
    for (line, status) in [
        ("GET /api/command", 404),
        ("GET /api/edit", 404),
        ("HEAD /api/command", 405),
        ("OPTIONS /api/command", 405),
        ("POST /api/graph", 405),
        ("DELETE /api/graph", 405),
        ("POST /", 405),
        ("GET /../Cargo.toml", 404),
        ("GET /api/", 404),
    ] {
        let answer = exchange(page.address(), &request(line, &headers, START));
        assert_eq!(answer.status, status, "{line}");
        assert!(!answer.head.contains("access-control-allow"), "{line}: {}", answer.head);
    }
    assert_eq!(run.calls(), 0);
}

#[test]
fn every_answer_has_the_headers_that_protect_the_page() {
    let (_run, page) = StandIn::serve(Graph::default(), Settings::default());
    let host = page.address().to_string();
    for (line, status) in
        [("GET /", 200), ("GET /app.js", 200), ("GET /nothing", 404), ("GET /api/graph", 401)]
    {
        let answer = exchange(page.address(), &request(line, &[("Host", &host)], ""));
        assert_eq!(answer.status, status);
        for header in [
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self';",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cross-origin-resource-policy: same-origin",
            "cache-control: no-store",
        ] {
            assert!(answer.head.contains(header), "{line}: {header} is not in {}", answer.head);
        }
        assert!(!answer.body.contains(page.token()));
    }
}

#[test]
fn a_body_that_is_too_large_or_too_deep_is_refused() {
    let settings = Settings { max_body_bytes: 10_000, ..Settings::default() };
    let (run, page) = StandIn::serve(Graph::default(), settings);
    let (host, token) = (page.address().to_string(), format!("Bearer {}", page.token()));
    let headers = [("Host", host.as_str()), ("Authorization", &token), ("Content-Type", "application/json")];
    let large = format!(r#"{{"do":"put","place":"{}"}}"#, "a".repeat(10_000));
    assert_eq!(exchange(page.address(), &request("POST /api/command", &headers, &large)).status, 413);
    let deep = "[".repeat(9_000);
    let deep_token = format!(r#"{{"do":"put","place":"a","token":{deep}"#);
    assert_eq!(exchange(page.address(), &request("POST /api/command", &headers, &deep_token)).status, 400);
    assert_eq!(exchange(page.address(), &request("PUT /api/graph", &headers, &deep)).status, 400);
    let many = "X-A: b\r\n".repeat(500);
    let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n{many}\r\n");
    assert!(matches!(exchange(page.address(), head.as_bytes()).status, 400 | 431));
    let long = format!("GET /{} HTTP/1.1\r\nHost: {host}\r\n\r\n", "a".repeat(100_000));
    assert!(matches!(exchange(page.address(), long.as_bytes()).status, 0 | 400 | 414 | 431));
    assert_eq!(run.calls(), 0);
}

#[test]
fn a_slow_client_is_cut() {
    let settings = Settings { request_time: Duration::from_millis(100), ..Settings::default() };
    let (run, page) = StandIn::serve(Graph::default(), settings);
    let (host, token) = (page.address(), page.token());
    let head = format!("POST /api/command HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n");
    for begun in [
        "",
        "GET / HT",
        &head,
        &format!("{head}Content-Type: application/json\r\nContent-Length: 15\r\n\r\n{{\"do"),
    ] {
        let mut client = connect(page.address());
        client.write_all(begun.as_bytes()).unwrap();
        let mut answer = String::new();
        // Comes back because the server closes the connection.
        let _ = client.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{begun:?}: {answer}");
    }
    assert_eq!(run.calls(), 0);
}

#[test]
fn a_client_that_does_not_read_is_cut() {
    let settings =
        Settings { max_connections: 1, write_time: Duration::from_millis(100), ..Settings::default() };
    let (run, page) = StandIn::serve(Graph::default(), settings);
    // More than the buffers of both sides hold.
    let name = "a".repeat(20 << 20);
    run.change(|changes| changes.places = [(name, 1)].into());
    let (host, token) = (page.address().to_string(), format!("Bearer {}", page.token()));
    let mut lazy = connect(page.address());
    lazy.write_all(&request("GET /api/changes", &[("Host", &host), ("Authorization", &token)], "")).unwrap();
    // The only place is free again when the server has cut the client that does not read.
    loop {
        let answer = exchange(page.address(), &request("GET /", &[("Host", &host)], ""));
        if answer.status == 200 {
            break;
        }
        std::thread::yield_now();
    }
}

#[test]
fn connections_beyond_the_bound_are_closed() {
    let (_run, page) =
        StandIn::serve(Graph::default(), Settings { max_connections: 2, ..Settings::default() });
    let host = page.address().to_string();
    let mut kept: Vec<_> = (0..2)
        .map(|_| {
            let mut client = connect(page.address());
            client.write_all(format!("GET /style.css HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
            // The answer has begun, so the connection has its place.
            client.read_exact(&mut [0; 12]).unwrap();
            client
        })
        .collect();
    assert_eq!(exchange(page.address(), &request("GET /", &[("Host", &host)], "")).status, 0);
    kept.pop();
    while exchange(page.address(), &request("GET /", &[("Host", &host)], "")).status != 200 {
        std::thread::yield_now();
    }
}
