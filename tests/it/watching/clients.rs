//! Whoever looks, and however: the relay goes on, and the others get their answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::{exchange, get, response, shown, wait_for_status};
use crate::harness::{Proc, wait_until};
use crate::world::{DEADLINE, World};

/// How long an answer may take beside hostile clients. Generous for a machine that is busy with other tests; without
/// bounds on those clients it would be for ever.
const SOON: Duration = Duration::from_secs(4);

/// Whether the relay still publishes, and others still get an answer soon.
fn is_well(world: &mut World, addr: SocketAddr, queue: &str, relay: &Proc) {
    let id = world.insert(queue, "{}");
    for path in ["/healthz", "/metrics", "/"] {
        let asked = Instant::now();
        assert_eq!(get(addr, path).status, 200, "{path}");
        assert!(asked.elapsed() < SOON, "{path} took {:?}", asked.elapsed());
    }
    wait_until(&format!("event {id} is published:\n{relay}"), DEADLINE, || {
        (world.row(id).status == "PUBLISHED").then_some(())
    });
}

fn connect(addr: SocketAddr) -> TcpStream {
    TcpStream::connect(addr).unwrap()
}

#[test]
fn each_request_gets_the_status_that_it_deserves() {
    let world = World::new();
    let (_relay, addr) = shown(&world, &[]);
    wait_for_status(addr, "/readyz", 200);
    let large = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(1 << 20));
    let cases: [(&[u8], u16); 15] = [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"GET /metrics?a=b HTTP/1.1\r\n\r\n", 200),
        (b"GET /metrics HTTP/1.0\r\n\r\n", 200),
        (b"GET /healthz HTTP/1.1\r\n\r\n", 200),
        (b"GET http://relay.example:9790/metrics HTTP/1.1\r\nHost: relay.example:9790\r\n\r\n", 200),
        (b"GET http://relay.example:9790/nothing HTTP/1.1\r\nHost: relay.example:9790\r\n\r\n", 404),
        (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"DELETE / HTTP/1.1\r\n\r\n", 405),
        (b"hello, is anybody there?\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"\0\0\0\0\0\0\0\0", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (large.as_bytes(), 431),
    ];
    for (request, expected) in cases {
        let shown = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
        let response = response(addr, request);
        assert_eq!(response.status, expected, "{shown}: {response:?}");
        assert!(response.head.contains("Connection: close"), "{shown}: {response:?}");
        let length = format!("Content-Length: {}", response.body.len());
        assert!(response.head.contains(&length), "{shown}: {response:?}");
    }
    let head = response(addr, b"HEAD /metrics HTTP/1.1\r\n\r\n");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert!(!head.head.contains("Content-Length: 0"), "{head:?}");
    // Half a head, and then nothing more: no answer is owed.
    assert_eq!(exchange(addr, b"GET /metr"), "");
    assert_eq!(exchange(addr, b""), "");
}

#[test]
fn two_hundred_silent_connections_keep_nobody_waiting() {
    let mut world = World::new();
    let queue = world.queue();
    let (relay, addr) = shown(&world, &[]);
    let silent: Vec<TcpStream> = (0..200).map(|_| connect(addr)).collect();
    is_well(&mut world, addr, &queue, &relay);
    drop(silent);
    is_well(&mut world, addr, &queue, &relay);
}

#[test]
fn slow_and_endless_requests_keep_nobody_waiting() {
    let mut world = World::new();
    let queue = world.queue();
    let (relay, addr) = shown(&world, &[]);
    let over = Arc::new(AtomicBool::new(false));
    let busy = |talk: fn(&mut TcpStream) -> std::io::Result<()>| {
        let over = Arc::clone(&over);
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let mut stream = connect(addr);
                while !over.load(Ordering::Relaxed) && talk(&mut stream).is_ok() {}
            }
        })
    };
    let mut clients: Vec<_> = Vec::new();
    for _ in 0..10 {
        // A byte now and then, and never a whole head.
        clients.push(busy(|stream| {
            thread::sleep(Duration::from_millis(50));
            stream.write_all(b"x")
        }));
    }
    // As much as it takes, and never an end.
    clients.push(busy(|stream| stream.write_all(&[b'x'; 65536])));
    // Connections without a word.
    clients.push(busy(|_| Err(std::io::ErrorKind::Other.into())));
    for _ in 0..3 {
        is_well(&mut world, addr, &queue, &relay);
    }
    over.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
}

#[test]
fn a_client_that_does_not_read_its_answer_keeps_nobody_waiting_and_is_cut_off() {
    let mut world = World::new();
    let queue = world.queue();
    let (relay, addr) = shown(&world, &[]);
    let mut deaf: Vec<TcpStream> = (0..20).map(|_| connect(addr)).collect();
    for stream in &mut deaf {
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    }
    is_well(&mut world, addr, &queue, &relay);
    for mut stream in deaf {
        // Its end comes without our closing anything.
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
    }
    wait_until("the relay holds no connection", DEADLINE, || {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", relay.id())).unwrap();
        let sockets = descriptors.filter(|it| {
            let target = std::fs::read_link(it.as_ref().unwrap().path()).unwrap_or_default();
            target.to_string_lossy().starts_with("socket:")
        });
        // Its listener, the broker's connection, and a few sessions of the database.
        (sockets.count() < 12).then_some(())
    });
}

#[test]
fn an_address_that_is_taken_or_not_ours_ends_the_relay_with_a_word() {
    let world = World::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let output = world.start(&["--metrics-addr", &addr]).wait(DEADLINE);
    assert_eq!(output.code, Some(69), "{output:?}");
    assert!(output.stderr.contains(&format!("listening on metrics_addr {addr} failed")), "{output:?}");
    assert!(output.stderr.contains("another program, or another relay, listens there"), "{output:?}");
    let output = world.start(&["--metrics-addr", "192.0.2.1:9790"]).wait(DEADLINE);
    assert_eq!(output.code, Some(69), "{output:?}");
    let output = world.start(&["--metrics-addr", "localhost:9790"]).wait(DEADLINE);
    assert_eq!(output.code, Some(78), "{output:?}");
    let mut open = world.start(&["--metrics-addr", "0.0.0.0:0"]);
    open.wait_for_line("is open to others", DEADLINE);
}
