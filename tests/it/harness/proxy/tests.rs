//! Each fault does what it says, in front of a server that echoes.

use crossbeam_channel::Receiver;

use super::super::wait::wait_until;
use super::*;

const DEADLINE: Duration = Duration::from_secs(60);

/// Long enough for bytes that are on their way to arrive, where a test says that none do.
const QUIET: Duration = Duration::from_millis(300);

/// How a connection ended, on the server's side.
struct Ended {
    received: Vec<u8>,
    error: Option<ErrorKind>,
}

/// An echo server behind a proxy.
struct World {
    proxy: Proxy,
    ended: Receiver<Ended>,
}

impl World {
    fn new() -> World {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let proxy = Proxy::to(listener.local_addr().unwrap().port());
        let (sender, ended) = crossbeam_channel::unbounded();
        // It lives as long as the test process does, and costs nothing while nobody connects.
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let sender = sender.clone();
                thread::spawn(move || {
                    let (mut received, mut buffer) = (Vec::new(), vec![0; CHUNK]);
                    // A write may be the first to be told of a reset, while bytes are left to read.
                    let mut failed = None;
                    let error = loop {
                        match stream.read(&mut buffer) {
                            Ok(0) => break failed,
                            Ok(count) => {
                                received.extend_from_slice(&buffer[..count]);
                                let written = stream.write_all(&buffer[..count]);
                                failed = failed.or(written.err().map(|error| error.kind()));
                            }
                            Err(error) => break Some(error.kind()),
                        }
                    };
                    let _ = sender.send(Ended { received, error });
                });
            }
        });
        World { proxy, ended }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.proxy.port())).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
    }

    /// A connection that has reached the server.
    fn connected(&self) -> TcpStream {
        let mut stream = self.connect();
        assert_eq!(echo(&mut stream, b"hello"), b"hello");
        stream
    }

    fn ended(&self) -> Ended {
        self.ended.recv_timeout(DEADLINE).expect("the server's side of the connection ends")
    }

    fn live(&self, count: usize) {
        wait_until("the number of live connections", DEADLINE, || (self.proxy.live() == count).then_some(()));
    }
}

fn echo(stream: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
    stream.write_all(bytes).unwrap();
    take(stream, bytes.len())
}

fn take(stream: &mut TcpStream, count: usize) -> Vec<u8> {
    let mut answer = vec![0; count];
    stream.read_exact(&mut answer).unwrap();
    answer
}

/// How the connection ends, on the client's side.
fn end(stream: &mut TcpStream) -> (usize, Option<ErrorKind>) {
    let mut rest = Vec::new();
    let error = stream.read_to_end(&mut rest).err().map(|error| error.kind());
    (rest.len(), error)
}

fn assert_quiet(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(QUIET)).unwrap();
    let error = stream.read(&mut [0]).expect_err("nothing is to arrive").kind();
    assert_eq!(error, ErrorKind::WouldBlock);
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
}

fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|n| (n / 7 % 251) as u8).collect()
}

#[test]
fn a_healthy_proxy_forwards_everything_and_the_end() {
    let world = World::new();
    let (mut stream, bytes) = (world.connect(), pattern(10_000_000));
    thread::scope(|scope| {
        let mut writer = stream.try_clone().unwrap();
        let bytes = &bytes;
        scope.spawn(move || {
            writer.write_all(bytes).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        assert!(answer == *bytes);
    });
    let ended = world.ended();
    assert!(ended.received == bytes && ended.error.is_none());
    world.live(0);
    assert_eq!(world.proxy.accepted(), 1);
    assert_eq!((world.proxy.bytes(ToServer), world.proxy.bytes(ToClient)), (10_000_000, 10_000_000));
}

#[test]
fn latency_holds_back_but_keeps_throughput_and_order() {
    let world = World::new();
    let (mut stream, bytes) = (world.connected(), pattern(8_000_000));
    world.proxy.delay(ToServer, Duration::from_millis(400));
    world.proxy.jitter(ToServer, Duration::from_millis(100));
    let begin = Instant::now();
    thread::scope(|scope| {
        let mut writer = stream.try_clone().unwrap();
        let bytes = &bytes;
        scope.spawn(move || writer.write_all(bytes).unwrap());
        let first = take(&mut stream, 1);
        assert!(begin.elapsed() >= Duration::from_millis(400));
        let rest = take(&mut stream, bytes.len() - 1);
        assert!([first, rest].concat() == *bytes);
    });
    // Were each of the 120 chunks held back on its own, it would take 50 s.
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[test]
fn what_latency_holds_back_goes_out_when_the_proxy_heals() {
    let world = World::new();
    let mut stream = world.connected();
    world.proxy.delay(ToClient, Duration::from_secs(3600));
    stream.write_all(b"late").unwrap();
    assert_quiet(&mut stream);
    world.proxy.heal();
    assert_eq!(take(&mut stream, 4), b"late");
}

#[test]
fn what_is_swallowed_is_lost_and_the_connection_lives() {
    let world = World::new();
    let mut stream = world.connected();
    world.proxy.swallow(ToServer, true);
    stream.write_all(b"lost").unwrap();
    assert_quiet(&mut stream);
    world.proxy.swallow(ToServer, false);
    assert_eq!(echo(&mut stream, b"again"), b"again");
    world.proxy.swallow(ToClient, true);
    stream.write_all(b"unanswered").unwrap();
    assert_quiet(&mut stream);
    drop(stream);
    assert_eq!(world.ended().received, b"helloagainunanswered");
}

#[test]
fn in_a_black_hole_the_peers_do_not_learn_of_each_others_end() {
    let world = World::new();
    let first = world.connected();
    world.proxy.swallow(ToServer, true);
    world.proxy.swallow(ToClient, true);
    let mut second = world.connect();
    second.write_all(b"lost").unwrap();
    assert_quiet(&mut second);
    SockRef::from(&first).set_linger(Some(Duration::ZERO)).unwrap();
    drop((first, second));
    assert!(world.ended.recv_timeout(QUIET).is_err());
    assert_eq!(world.proxy.live(), 2);
    world.proxy.heal();
    let ends = [world.ended(), world.ended()];
    let of = |received: &[u8]| ends.iter().find(|end| end.received == received).unwrap().error;
    assert_eq!((of(b"hello"), of(b"")), (Some(ErrorKind::ConnectionReset), None));
    world.live(0);
}

#[test]
fn a_stalled_direction_fills_the_senders_window_and_loses_nothing() {
    let world = World::new();
    let mut stream = world.connected();
    world.proxy.stall(ToServer);
    stream.set_write_timeout(Some(QUIET)).unwrap();
    let (chunk, mut sent) = (pattern(CHUNK), Vec::new());
    loop {
        match stream.write(&chunk) {
            Ok(count) => sent.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
        assert!(sent.len() < 64 * 1024 * 1024, "the window does not fill");
    }
    assert_eq!(world.proxy.bytes(ToServer), 5);
    world.proxy.heal();
    assert!(take(&mut stream, sent.len()) == sent);
}

#[test]
fn a_limited_bandwidth_takes_its_time_and_pushes_back() {
    let world = World::new();
    let mut stream = world.connected();
    world.proxy.bandwidth(ToServer, 100_000);
    let begin = Instant::now();
    assert!(echo(&mut stream, &pattern(50_000)) == pattern(50_000));
    // The last piece is not waited for.
    assert!(begin.elapsed() >= Duration::from_millis(440), "{:?}", begin.elapsed());
    world.proxy.bandwidth(ToServer, 1);
    stream.set_write_timeout(Some(QUIET)).unwrap();
    assert!(stream.write_all(&vec![0; 64 * 1024 * 1024]).is_err());
}

#[test]
fn a_sliced_direction_pauses_after_each_piece() {
    let world = World::new();
    let mut stream = world.connected();
    world.proxy.slice(ToClient, 10, Duration::from_millis(30));
    let begin = Instant::now();
    assert_eq!(echo(&mut stream, &pattern(105)), pattern(105));
    assert!(begin.elapsed() >= Duration::from_millis(10 * 30), "{:?}", begin.elapsed());
}

#[test]
fn a_cut_resets_both_sides_after_exactly_so_many_bytes_and_only_once() {
    let world = World::new();
    // No more than the receiver's window takes at once: a reset throws away what was not sent yet.
    for bytes in [1, 37, 99, 20_000] {
        let mut stream = world.connect();
        world.proxy.cut_after(ToServer, bytes as u64);
        // The rest meets a connection that is gone.
        let _ = stream.write_all(&pattern(300_000));
        let _ = end(&mut stream);
        let ended = world.ended();
        assert!(ended.received == pattern(bytes), "{} instead of {bytes}", ended.received.len());
        assert_eq!(ended.error, Some(ErrorKind::ConnectionReset));
        drop(world.connected());
        assert_eq!(world.ended().error, None);
    }
}

#[test]
fn a_cut_after_answers_lets_the_client_read_exactly_so_many_bytes() {
    let world = World::new();
    let mut stream = world.connected();
    world.proxy.cut_after(ToClient, 11);
    stream.write_all(&pattern(100)).unwrap();
    let mut answer = Vec::new();
    let error = stream.read_to_end(&mut answer).expect_err("the connection is reset");
    assert_eq!((answer, error.kind()), (pattern(11), ErrorKind::ConnectionReset));
    let mut stream = world.connected();
    world.proxy.cut_after(ToClient, 0);
    stream.write_all(b"unanswered").unwrap();
    assert_eq!(end(&mut stream), (0, Some(ErrorKind::ConnectionReset)));
}

#[test]
fn a_reset_reaches_both_sides_of_every_connection_even_when_their_windows_are_full() {
    let world = World::new();
    let (mut first, mut second) = (world.connected(), world.connected());
    // The client reads none of the echo, so that all four threads of the proxy are busy or stuck.
    first.set_write_timeout(Some(QUIET)).unwrap();
    assert!(first.write_all(&vec![7; 64 * 1024 * 1024]).is_err());
    world.proxy.reset();
    assert_eq!(world.proxy.live(), 0);
    assert_eq!(end(&mut first).1, Some(ErrorKind::ConnectionReset));
    assert_eq!(end(&mut second), (0, Some(ErrorKind::ConnectionReset)));
    for _ in 0..2 {
        assert_eq!(world.ended().error, Some(ErrorKind::ConnectionReset));
    }
    drop(world.connected());
}

#[test]
fn a_reset_by_the_client_reaches_the_server_as_a_reset_while_answers_flow() {
    let world = World::new();
    for _ in 0..20 {
        let mut stream = world.connected();
        stream.write_all(&vec![7; 1_000_000]).unwrap();
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        drop(stream);
        assert_eq!(world.ended().error, Some(ErrorKind::ConnectionReset));
    }
    world.live(0);
}

#[test]
fn a_close_reaches_both_sides_as_an_ordinary_end() {
    let world = World::new();
    let mut stream = world.connected();
    world.proxy.close();
    assert_eq!(end(&mut stream), (0, None));
    assert_eq!(world.ended().error, None);
    assert_eq!(world.proxy.live(), 0);
}

#[test]
fn a_refusing_proxy_resets_new_connections_and_keeps_the_live_ones() {
    let world = World::new();
    let mut live = world.connected();
    world.proxy.refuse(true);
    // The reset can come before `connect` returns.
    let refused = TcpStream::connect((Ipv4Addr::LOCALHOST, world.proxy.port()));
    let error = refused.and_then(|mut stream| stream.read(&mut [0])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(echo(&mut live, b"still here"), b"still here");
    assert_eq!(world.proxy.accepted(), 1);
    world.proxy.heal();
    drop(world.connected());
    assert_eq!(world.proxy.accepted(), 2);
}

#[test]
fn a_server_that_is_not_there_is_a_reset() {
    let proxy = Proxy::to(super::super::free_port());
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port()));
    let error = stream.and_then(|mut stream| stream.read(&mut [0])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(proxy.live(), 0);
}

#[test]
fn dropping_the_proxy_ends_its_connections_under_any_fault_and_frees_its_port() {
    let world = World::new();
    let mut stream = world.connected();
    for direction in [ToServer, ToClient] {
        world.proxy.stall(direction);
        world.proxy.delay(direction, Duration::from_secs(3600));
        world.proxy.swallow(direction, true);
    }
    stream.write_all(b"never").unwrap();
    let (port, shared) = (world.proxy.port(), Arc::downgrade(&world.proxy.shared));
    drop(world.proxy);
    assert_eq!(end(&mut stream), (0, Some(ErrorKind::ConnectionReset)));
    // Each thread holds it.
    wait_until("the proxy's threads are gone", DEADLINE, || (shared.strong_count() == 0).then_some(()));
    let again = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    assert_eq!(again.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}
