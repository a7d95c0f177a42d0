//! Names that resolve to nothing, to several addresses, or never; and each part of a URL against a real broker.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::{env, fs};

use socket2::{Domain, Socket, Type};

use super::{IN_TIME, PASSWORD, address_of, assert_published, changed, hand_on, once};
use crate::harness::{Broker, Output, Proc, free_port, unique};
use crate::opening::refusals::rabbit;
use crate::world::{OUTBOXD, World};

/// Mounts two files over the system's, in a namespace that only the program sees, and becomes the program.
const NAMESPACE: [&str; 6] = [
    "--map-root-user",
    "--mount",
    "sh",
    "-c",
    "mount --bind \"$1\" /etc/hosts && mount --bind \"$2\" /etc/resolv.conf && shift 2 && exec \"$@\"",
    "sh",
];

/// A program's view of names: files that are gone with it.
struct Names {
    hosts: PathBuf,
    servers: PathBuf,
}

impl Names {
    fn new(hosts: &str, servers: &str) -> Names {
        let file = |name: &str, text: &str| {
            let path = env::temp_dir().join(unique(name));
            fs::write(&path, text).unwrap();
            path
        };
        Names { hosts: file("outboxd-test-hosts", hosts), servers: file("outboxd-test-resolv", servers) }
    }

    /// Runs a program that sees these names.
    fn run(&self, program: &[&str], environment: &[(&str, &str)]) -> Output {
        let paths = [self.hosts.to_str().unwrap(), self.servers.to_str().unwrap()];
        Proc::run("unshare", &[&NAMESPACE[..], &paths, program].concat(), environment, IN_TIME)
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.hosts);
        let _ = fs::remove_file(&self.servers);
    }
}

/// Publishes one event over the name `twofold`, whose first address is dead, and which has the broker at its second one.
fn check_second_address(first: &str, second: &str, port: u16) {
    let names = Names::new(&format!("{first} twofold\n{second} twofold\n"), "");
    let order = names.run(&["getent", "ahosts", "twofold"], &[]);
    assert!(order.stdout.starts_with(first) && order.stdout.contains(second), "{order:?}");
    let mut world = World::new();
    let queue = world.queue();
    let id = world.insert(&queue, "{}");
    let url = changed(&world.amqp_url, |url| {
        url.set_host(Some("twofold")).unwrap();
        url.set_port(Some(port)).unwrap();
    });
    let environment = [("DATABASE_URL", world.database.url.as_str()), ("AMQP_URL", &url)];
    let output = names.run(&[OUTBOXD, "once", "--open-timeout", "4s"], &environment);
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_published(&world.row(id));
    assert_eq!(world.arrivals(&queue).len(), 1);
}

#[test]
fn a_host_whose_first_address_refuses_is_reached_at_its_second() {
    // Nobody listens at this port of the other family's loopback.
    let port = free_port();
    let target = address_of(&World::new().amqp_url);
    hand_on(SocketAddr::from(([127, 0, 0, 1], port)), target);
    check_second_address("::1", "127.0.0.1", port);
}

/// A socket of 127.0.0.2 that swallows everything, as long as the rest is held.
fn swallowing() -> (SocketAddr, impl Sized) {
    // A backlog of one, full: further attempts are neither accepted nor refused.
    let full = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    full.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).unwrap();
    full.listen(0).unwrap();
    let address = full.local_addr().unwrap().as_socket().unwrap();
    let wait = std::time::Duration::from_millis(300);
    let mut waiting = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&address, wait) {
        waiting.push(stream);
    }
    (address, (full, waiting))
}

/// The database's client has a time limit for each address, and it must leave room for the next one.
#[test]
fn a_database_whose_first_address_swallows_everything_is_reached_at_its_second() {
    let (address, _held) = swallowing();
    let world = World::new();
    let target = address_of(&world.database.url);
    hand_on(SocketAddr::from(([127, 0, 0, 3], address.port())), target);
    let names = Names::new("127.0.0.2 twofold\n127.0.0.3 twofold\n", "");
    let url = changed(&world.database.url, |url| {
        url.set_host(Some("twofold")).unwrap();
        url.set_port(Some(address.port())).unwrap();
    });
    let environment = [("DATABASE_URL", url.as_str())];
    let output = names.run(&[OUTBOXD, "enqueue", "x", "--open-timeout", "4s"], &environment);
    assert_eq!(output.code, Some(0), "{output:?}");
}

#[test]
fn a_host_whose_first_address_swallows_everything_is_reached_at_its_second() {
    let (address, _held) = swallowing();
    let target = address_of(&World::new().amqp_url);
    hand_on(SocketAddr::from(([127, 0, 0, 3], address.port())), target);
    check_second_address("127.0.0.2", "127.0.0.3", address.port());
}

#[test]
fn a_name_that_does_not_resolve_ends_in_time_and_is_named() {
    let mut world = World::new();
    let id = world.insert("x", "{}");
    let before = world.row(id);
    let names = Names::new("127.0.0.1 localhost\n", "");
    let url = format!("amqp://app:{PASSWORD}@nowhere.invalid/%2F");
    let environment = [("DATABASE_URL", world.database.url.as_str()), ("AMQP_URL", &url)];
    let output = names.run(&[OUTBOXD, "once", "--open-timeout", "8s"], &environment);
    assert_eq!(output.code, Some(69), "{output:?}");
    let last = output.stderr.lines().last().unwrap();
    let expected =
        "outboxd: opening a session on broker nowhere.invalid:5672/ failed: its name does not resolve: ";
    assert!(last.starts_with(expected), "{last}");
    assert!(!output.stderr.contains(PASSWORD), "{output:?}");
    assert_eq!(world.row(id), before);
}

#[test]
fn a_name_server_that_never_answers_is_not_waited_for() {
    // The port of name servers takes an administrator; for anyone else the step before is what can be tested.
    let silent = match UdpSocket::bind("127.0.0.77:53") {
        Ok(socket) => Some(socket),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => None,
        Err(error) => panic!("{error}"),
    };
    let world = World::new();
    // The resolver itself would take four minutes.
    let names = Names::new("127.0.0.1 localhost\n", "nameserver 127.0.0.77\noptions timeout:30 attempts:4\n");
    let url = format!("amqp://app:{PASSWORD}@broker.example/%2F");
    let environment = [("DATABASE_URL", world.database.url.as_str()), ("AMQP_URL", &url)];
    let output = names.run(&[OUTBOXD, "once", "--open-timeout", "1s"], &environment);
    assert_eq!(output.code, Some(69), "{output:?}");
    let last = output.stderr.lines().last().unwrap();
    assert!(last.starts_with("outboxd: opening a session on broker broker.example:5672/ "), "{last}");
    if silent.is_some() {
        assert!(last.contains("waited longer than open_timeout 1s for its address to answer"), "{last}");
    }
    assert!(!output.stderr.contains(PASSWORD), "{output:?}");
}

#[test]
fn user_password_and_virtual_host_may_hold_any_character() {
    let rabbit = rabbit();
    let (user, vhost) = (unique("a:b@c/d é%"), unique("x/y z?#é"));
    let password = "p@s/s:w?r#d%41+ é";
    rabbit.ctl(&["add_user", &user, password]);
    rabbit.ctl(&["add_vhost", &vhost]);
    for name in [&user, "guest"] {
        rabbit.ctl(&["set_permissions", "-p", &vhost, name, ".*", ".*", ".*"]);
    }
    let encoded = |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02X}")).collect() };
    let mut world = World::new();
    world.broker = Broker::open(&rabbit.url().replace("%2F", &encoded(&vhost)));
    let queue = world.queue();
    let id = world.insert(&queue, "{}");
    let url = format!(
        "amqp://{}:{}@127.0.0.1:{}/{}",
        encoded(&user),
        encoded(password),
        rabbit.port(),
        encoded(&vhost)
    );
    let output = once(&world.database.url, &url, &[], 0);
    assert_published(&world.row(id));
    assert_eq!(world.arrivals(&queue).len(), 1);
    let told = output.stdout + &output.stderr;
    assert!(!told.contains(password) && !told.contains(&encoded(password)), "{told}");
}

#[test]
fn an_ipv6_address_is_reached() {
    let rabbit = rabbit();
    let port = free_port();
    rabbit.eval(&format!("rabbit_networking:start_tcp_listener({{\"::1\", {port}}}, 10)."));
    let mut world = World::new();
    world.broker = Broker::open(&rabbit.url());
    let queue = world.queue();
    let id = world.insert(&queue, "{}");
    once(&world.database.url, &format!("amqp://guest:guest@[::1]:{port}/%2F"), &[], 0);
    assert_published(&world.row(id));
    assert_eq!(world.arrivals(&queue).len(), 1);
    // And where nobody listens, the address is named as one that can be copied.
    let nobody = free_port();
    let output = once(&world.database.url, &format!("amqp://app:{PASSWORD}@[::1]:{nobody}/%2F"), &[], 69);
    assert!(output.stderr.contains(&format!("broker [::1]:{nobody}/ failed")), "{output:?}");
}

#[test]
fn the_heartbeat_is_the_urls_or_ten_seconds() {
    let rabbit = rabbit();
    for (parameter, seconds) in [("", "10"), ("?heartbeat=7", "7"), ("?heartbeat=0", "0")] {
        let user = unique("beat");
        rabbit.ctl(&["add_user", &user, PASSWORD]);
        rabbit.ctl(&["set_permissions", &user, ".*", ".*", ".*"]);
        let mut world = World::new();
        world.amqp_url = format!("amqp://{user}:{PASSWORD}@127.0.0.1:{}/%2F{parameter}", rabbit.port());
        let _relay = world.start(&["--interval", "300ms"]);
        let ask = format!(
            "[{{T}} || [{{user, <<\"{user}\">>}}, {{timeout, T}}] <- \
             rabbit_networking:connection_info_all([user, timeout])]."
        );
        let expected = format!("[{{{seconds}}}]");
        crate::harness::wait_until(&format!("a connection with heartbeat {seconds}"), IN_TIME, || {
            // While it logs in, the connection is there with other values.
            (rabbit.eval(&ask) == expected).then_some(())
        });
    }
}
