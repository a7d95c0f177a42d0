//! What others see of the relay: metrics, health, the status page, the file that a run leaves.

mod alerts;
mod clients;
mod file;
mod health;
mod metrics;
mod page;
mod secrets;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::harness::{Proc, wait_until};
use crate::world::{DEADLINE, World};

/// What has the relay answer on a free port.
const SHOWN: [&str; 2] = ["--metrics-addr", "127.0.0.1:0"];

/// A response.
#[derive(Debug)]
struct Response {
    status: u16,
    head: String,
    body: String,
}

/// Starts a relay that is shown, with these further arguments, and returns it with its address. Prompt, so that tests need
/// not wait for beats.
fn shown(world: &World, arguments: &[&str]) -> (Proc, SocketAddr) {
    shown_with(world, &[&["--interval", "200ms"], arguments].concat())
}

fn shown_with(world: &World, arguments: &[&str]) -> (Proc, SocketAddr) {
    let mut relay = world.start(&[&SHOWN[..], arguments].concat());
    let addr = address(&mut relay);
    (relay, addr)
}

/// Where a relay says that it can be seen.
fn address(relay: &mut Proc) -> SocketAddr {
    let line = relay.wait_for_line(" are at http://", DEADLINE);
    let (_, url) = line.split_once("http://").unwrap();
    let (addr, _) = url.split_once('/').unwrap();
    addr.parse().unwrap()
}

/// Sends these bytes, and nothing more; everything that comes back.
fn exchange(addr: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    // The other side may have said all it has to say before it has read everything.
    let _ = stream.write_all(request);
    let _ = stream.shutdown(Shutdown::Write);
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    String::from_utf8(response).unwrap()
}

/// The same, as a response.
fn response(addr: SocketAddr, request: &[u8]) -> Response {
    let text = exchange(addr, request);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Response { status, head: head.into(), body: body.into() }
}

fn get(addr: SocketAddr, path: &str) -> Response {
    response(addr, format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\n\r\n").as_bytes())
}

/// The samples of a text, by their names and labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

fn metrics(addr: SocketAddr) -> BTreeMap<String, f64> {
    let response = get(addr, "/metrics");
    assert_eq!(response.status, 200, "{response:?}");
    samples(&response.body)
}

/// Waits until these samples have these values.
fn wait_for_samples(addr: SocketAddr, expected: &[(&str, f64)]) -> BTreeMap<String, f64> {
    let mut last = String::new();
    let found = |last: &mut String| {
        let all = metrics(addr);
        last.clear();
        for (name, value) in expected.iter().filter(|(name, value)| all.get(*name) != Some(value)) {
            let _ = writeln!(last, "{name} is {:?}, not {value}", all.get(*name));
        }
        last.is_empty().then_some(all)
    };
    // The helper's message is made before it waits; what was missing shows on the way.
    let begin = std::time::Instant::now();
    loop {
        if let Some(all) = found(&mut last) {
            return all;
        }
        assert!(begin.elapsed() < DEADLINE, "waited in vain: {last}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until a path answers with this status; the body.
fn wait_for_status(addr: SocketAddr, path: &str, status: u16) -> String {
    wait_until(&format!("{path} is {status}"), DEADLINE, || {
        let response = get(addr, path);
        (response.status == status).then_some(response.body)
    })
}

/// What `promtool` says of its input; it must be content.
fn promtool(arguments: &[&str], input: &str) -> String {
    let mut process = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("promtool is not there ({error}); run: make prepare"));
    process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
    said
}
