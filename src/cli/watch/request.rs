//! One request and its response: the little of HTTP/1.1 that three paths need. Pure.

use std::fmt::Write;

use httparse::{EMPTY_HEADER, Error, Status};

/// Most bytes of a request's head, and most headers in it.
pub(super) const HEAD_MAX: usize = 4096;
const HEADERS_MAX: usize = 48;

/// What there is to say to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) body: String,
}

impl Reply {
    pub(super) fn plain(status: u16, text: impl Into<String>) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: text.into() + "\n" }
    }
}

/// What the bytes of a head say so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// There is more to come.
    Partial,
    /// A request for what is at this path.
    Get {
        path: String,
        /// Without the body, please.
        head_only: bool,
    },
    /// No request that is answered here.
    Wrong(Reply),
}

/// Reads as much of a head as there is, which is at most [`HEAD_MAX`] bytes.
pub(super) fn read(bytes: &[u8]) -> Head {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let too_large =
        || Head::Wrong(Reply::plain(431, "the request's head is over 4 kB, or has too many headers"));
    match request.parse(bytes) {
        Ok(Status::Partial) if bytes.len() >= HEAD_MAX => too_large(),
        Ok(Status::Partial) => Head::Partial,
        Ok(Status::Complete(_)) => {
            let path = path(request.path.unwrap_or_default()).to_owned();
            match request.method {
                Some("GET") => Head::Get { path, head_only: false },
                Some("HEAD") => Head::Get { path, head_only: true },
                _ => Head::Wrong(Reply::plain(405, "only GET and HEAD: nothing can be changed here")),
            }
        }
        Err(Error::TooManyHeaders) => too_large(),
        Err(Error::Version) => Head::Wrong(Reply::plain(505, "only HTTP/1.1 and HTTP/1.0")),
        Err(_) => Head::Wrong(Reply::plain(400, "this is no HTTP request")),
    }
}

/// The path of a request's target: that may be a whole address, as proxies are asked with (RFC 9112, 3.2.2). Whose it is
/// does not matter, there is only this host.
fn path(target: &str) -> &str {
    let path = match target.split_once("://") {
        Some((scheme, rest)) if ["http", "https"].iter().any(|it| scheme.eq_ignore_ascii_case(it)) => {
            rest.find(['/', '?']).and_then(|at| rest.get(at..)).unwrap_or_default()
        }
        _ => target,
    };
    match path.split('?').next() {
        None | Some("") => "/",
        Some(path) => path,
    }
}

/// The bytes of a response, after which the connection is closed.
pub(super) fn response(reply: &Reply, head_only: bool) -> Vec<u8> {
    let Reply { status, content_type, body } = reply;
    let mut head = format!("HTTP/1.1 {status} {}\r\n", phrase(*status));
    let _ = write!(head, "Content-Type: {content_type}\r\nContent-Length: {}\r\n", body.len());
    // What a browser shows is ours alone, is read anew each time, and loads nothing from anywhere.
    head += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'\r\n";
    if *status == 405 {
        head += "Allow: GET, HEAD\r\n";
    }
    head += "Connection: close\r\n\r\n";
    if !head_only {
        head += body;
    }
    head.into_bytes()
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        505 => "HTTP Version Not Supported",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &[u8]) -> Option<u16> {
        match read(head) {
            Head::Partial => None,
            Head::Get { .. } => Some(200),
            Head::Wrong(reply) => Some(reply.status),
        }
    }

    #[test]
    fn requests_are_told_from_everything_else() {
        let get = |path: &str| Head::Get { path: path.into(), head_only: false };
        assert_eq!(read(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), get("/metrics"));
        assert_eq!(read(b"GET /?a=b?c HTTP/1.0\n\n"), get("/"));
        for (target, expected) in [
            ("http://127.0.0.1:9790/metrics", "/metrics"),
            ("HTTP://host/healthz?a=http://b/c", "/healthz"),
            ("https://user@[::1]:1/readyz", "/readyz"),
            ("http://host", "/"),
            ("http://host?a", "/"),
            ("/a://b", "/a://b"),
            ("/metrics?http://host/", "/metrics"),
            ("ftp://host/metrics", "ftp://host/metrics"),
        ] {
            assert_eq!(read(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()), get(expected));
        }
        assert_eq!(read(b"HEAD / HTTP/1.1\r\n\r\nbody"), Head::Get { path: "/".into(), head_only: true });
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        let long = format!("GET /{} ", "x".repeat(HEAD_MAX));
        let cases: [(&[u8], Option<u16>); 12] = [
            (b"", None),
            (b"GET /metr", None),
            (b"GET / HTTP/1.1\r\nHost: x\r\n", None),
            (b"POST / HTTP/1.1\r\n\r\n", Some(405)),
            (b"DELETE /metrics HTTP/1.1\r\n\r\n", Some(405)),
            (b"PRI * HTTP/2.0\r\n\r\n", Some(505)),
            (b"\x16\x03\x01\x02\x00\x01", Some(400)),
            (b"hello\r\n\r\n", Some(400)),
            (b"GET / HTTP/1.1\r\n: x\r\n\r\n", Some(400)),
            (b"\0\0\0\0", Some(400)),
            (many.as_bytes(), Some(431)),
            (&long.as_bytes()[..HEAD_MAX], Some(431)),
        ];
        for (head, expected) in cases {
            assert_eq!(status(head), expected, "{:?}", String::from_utf8_lossy(head));
        }
    }

    #[test]
    fn a_response_says_how_long_it_is_and_that_it_is_the_last() {
        let reply = Reply::plain(405, "é");
        let text = String::from_utf8(response(&reply, false)).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(body, "é\n");
        for line in
            ["HTTP/1.1 405 Method Not Allowed", "Content-Length: 3", "Connection: close", "Allow: GET, HEAD"]
        {
            assert!(head.lines().any(|it| it == line), "{line:?} in {head}");
        }
        let short = String::from_utf8(response(&reply, true)).unwrap();
        assert_eq!(short, format!("{head}\r\n\r\n"));
    }
}
