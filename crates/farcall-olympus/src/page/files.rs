//! The page's own files, which the program contains, and the headers of each answer.

use hyper::header::{self, HeaderMap, HeaderValue};

/// Scripts and styles come from this server alone, and connections go to it alone. Nothing else is loaded, no
/// script or style in the page's text runs, and no other page may show this one in a frame.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

/// Returns the content type and the text of a file of the page.
pub(super) fn find(path: &str) -> Option<(&'static str, &'static str)> {
    Some(match path {
        "/" => (HTML, include_str!("index.html")),
        "/style.css" => (STYLE, include_str!("style.css")),
        "/icon.svg" => (PICTURE, include_str!("icon.svg")),
        "/app.js" => (SCRIPT, include_str!("app.js")),
        "/canvas.js" => (SCRIPT, include_str!("canvas.js")),
        "/client.js" => (SCRIPT, include_str!("client.js")),
        "/dom.js" => (SCRIPT, include_str!("dom.js")),
        "/editor.js" => (SCRIPT, include_str!("editor.js")),
        "/failures.js" => (SCRIPT, include_str!("failures.js")),
        "/graph.js" => (SCRIPT, include_str!("graph.js")),
        "/inspector.js" => (SCRIPT, include_str!("inspector.js")),
        "/overview.js" => (SCRIPT, include_str!("overview.js")),
        "/run.js" => (SCRIPT, include_str!("run.js")),
        _ => return None,
    })
}

/// Adds the headers that every answer has.
pub(super) fn protect(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
