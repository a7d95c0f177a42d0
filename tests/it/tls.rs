//! TLS to the broker: it works with an own CA and with client certificates, it always verifies, and what is wrong is
//! readable, bounded, and without a secret.

mod clients;
mod stalls;

use std::path::Path;
use std::sync::LazyLock;
use std::time::Duration;
use std::{env, fs, thread};

use crate::harness::{
    Behaviour, Broker, Certificates, Hostile, Identity, Output, Proc, Rabbit, free_port, unique,
};
use crate::world::{DEADLINE, OUTBOXD, Row, World};

/// A password that no output may hold.
const PASSWORD: &str = "s3cr3t-marker";

/// Far more than an `open_timeout` of two seconds.
const IN_TIME: Duration = Duration::from_secs(30);

/// A broker with one listener in the clear and several with TLS, each with its own certificate and demands.
struct Listeners {
    rabbit: Rabbit,
    /// Shows a certificate for `localhost` and 127.0.0.1, and takes any client.
    tls: u16,
    /// Shows one for `elsewhere.example`.
    elsewhere: u16,
    /// Shows one that has expired.
    expired: u16,
    /// Takes only clients with a certificate by our authority.
    strict: u16,
}

/// One broker for all tests here; none of them breaks it.
fn listeners() -> &'static Listeners {
    static LISTENERS: LazyLock<Listeners> = LazyLock::new(|| {
        let certificates = Certificates::make();
        let tls = free_port();
        let mut options = certificates.server().rabbit_options(tls);
        let mechanisms = ["PLAIN", "EXTERNAL"];
        options.config.extend((1..).zip(mechanisms).map(|(n, name)| format!("auth_mechanisms.{n} = {name}")));
        options.config.push("ssl_cert_login_from = common_name".to_owned());
        // The login by certificate looks here, whatever the listener demands.
        options.config.push("ssl_options.verify = verify_peer".to_owned());
        // With that alone, RabbitMQ 4 turns away clients without a certificate; RabbitMQ 3 lets them in.
        options.config.push("ssl_options.fail_if_no_peer_cert = false".to_owned());
        let rabbit = Rabbit::start(&options);
        rabbit.ctl(&["add_user", "app", PASSWORD]);
        rabbit.ctl(&["set_permissions", "app", ".*", ".*", ".*"]);
        let listen = |identity: &Identity, demands: &str| {
            let port = free_port();
            let [ca, certificate, key] =
                [certificates.ca(), &identity.certificate, &identity.key].map(Path::display);
            rabbit.eval(&format!(
                "ok = rabbit_networking:start_ssl_listener({{\"127.0.0.1\", {port}}}, [{{cacertfile, \"{ca}\"}}, \
                 {{certfile, \"{certificate}\"}}, {{keyfile, \"{key}\"}}{demands}], 10)."
            ));
            port
        };
        let elsewhere = listen(certificates.wrong_name(), "");
        let expired = listen(certificates.expired(), "");
        let strict = listen(certificates.server(), ", {verify, verify_peer}, {fail_if_no_peer_cert, true}");
        Listeners { rabbit, tls, elsewhere, expired, strict }
    });
    &LISTENERS
}

/// A URL for the user `app`, with parameters.
fn url(scheme: &str, host: &str, port: u16, parameters: &str) -> String {
    format!("{scheme}://app:{PASSWORD}@{host}:{port}/%2F?{parameters}")
}

/// The parameter that trusts this authority.
fn trusting(ca: &Path) -> String {
    format!("cacertfile={}", ca.display())
}

/// The parameters that show this certificate.
fn showing(identity: &Identity) -> String {
    format!("&certfile={}&keyfile={}", identity.certificate.display(), identity.key.display())
}

/// A world on the broker with TLS, whose test speaks to it in the clear.
fn world() -> World {
    let mut world = World::new();
    world.broker = Broker::open(&listeners().rabbit.url());
    world
}

/// Runs `once` with this URL, and expects the exit code in time, and no password.
fn once(database_url: &str, amqp_url: &str, code: i32) -> Output {
    let environment = [("DATABASE_URL", database_url), ("AMQP_URL", amqp_url)];
    let output = Proc::run(OUTBOXD, &["once", "-vv", "--open-timeout", "2s"], &environment, IN_TIME);
    let told = format!("{}{}", output.stdout, output.stderr);
    assert!(!told.contains(PASSWORD) && !told.contains("panic"), "{told}");
    assert_eq!(output.code, Some(code), "{output:?}");
    output
}

/// One event goes over this URL, and arrives.
fn check_delivery(amqp_url: &str) {
    let mut world = world();
    let queue = world.queue();
    let id = world.insert(&queue, "{}");
    once(&world.database.url, amqp_url, 0);
    assert_published(&world.row(id));
    assert_eq!(world.arrivals(&queue), [world.row(id).event_id]);
}

fn assert_published(row: &Row) {
    let found = (row.status.as_str(), row.fail_count, row.published, row.last_error.as_deref());
    assert_eq!(found, ("PUBLISHED", 0, true, None), "{row:?}");
}

/// Each of these URLs must end with its code and words, and nothing happens to the event that is due.
fn check_refusals(cases: &[(String, i32, &[&str])]) {
    let mut world = World::new();
    let id = world.insert("x", "{}");
    let before = world.row(id);
    let database_url = world.database.url.as_str();
    thread::scope(|scope| {
        for (url, code, words) in cases {
            scope.spawn(move || {
                let output = once(database_url, url, *code);
                let last = output.stderr.lines().last().unwrap();
                assert!(last.starts_with("outboxd: "), "{output:?}");
                for word in *words {
                    assert!(last.contains(word), "{word:?} is not in: {last}");
                }
            });
        }
    });
    assert_eq!(world.row(id), before);
    assert!(!before.attempted);
}

#[test]
fn events_go_to_a_broker_whose_certificate_an_own_ca_has_signed() {
    let ca = trusting(Certificates::make().ca());
    for host in ["localhost", "127.0.0.1"] {
        check_delivery(&url("amqps", host, listeners().tls, &ca));
    }
}

#[test]
fn a_certificate_for_another_name_is_taken_when_the_url_says_so() {
    let parameters = trusting(Certificates::make().ca()) + "&server_name_indication=elsewhere.example";
    check_delivery(&url("amqps", "127.0.0.1", listeners().elsewhere, &parameters));
}

#[test]
fn a_certificate_that_proves_nothing_ends_with_78_and_says_what_to_check() {
    let (listeners, certificates) = (listeners(), Certificates::make());
    let ca = trusting(certificates.ca());
    let check = "check the broker's certificate, and cacertfile in AMQP_URL";
    let case = |port: u16, parameters: &str| url("amqps", "localhost", port, parameters);
    check_refusals(&[
        (case(listeners.tls, &trusting(certificates.other_ca())), 78, &[check, "certificate verify failed"]),
        // The system does not trust it either.
        (case(listeners.tls, ""), 78, &[check, "certificate verify failed"]),
        (case(listeners.elsewhere, &ca), 78, &[check, "ostname mismatch"]),
        (case(listeners.tls, &(ca.clone() + "&server_name_indication=other.example")), 78, &[check]),
        (case(listeners.expired, &ca), 78, &[check, "expired"]),
    ]);
}

#[test]
fn a_port_that_does_not_speak_tls_ends_with_69_in_time() {
    let ca = trusting(Certificates::make().ca());
    let silent = Hostile::start(Behaviour::Silent);
    let garbage = Hostile::start(Behaviour::Garbage);
    let gone = Hostile::start(Behaviour::HangUp);
    let opening = "opening a session on broker ";
    check_refusals(&[
        (
            url("amqps", "localhost", listeners().rabbit.port(), &ca),
            69,
            &[opening, "the TLS handshake", "is it a port for TLS?"],
        ),
        (url("amqps", "localhost", garbage.port(), &ca), 69, &[opening, "is it a port for TLS?"]),
        (url("amqps", "localhost", gone.port(), &ca), 69, &[opening, "is it a port for TLS?"]),
        (url("amqps", "localhost", silent.port(), &ca), 69, &[opening, "open_timeout 2s", "broker's answer"]),
        // And the other way round.
        (url("amqp", "localhost", listeners().tls, "heartbeat=5"), 69, &[opening]),
    ]);
}

#[test]
fn a_file_that_cannot_be_used_ends_with_78_and_is_named() {
    let certificates = Certificates::make();
    let garbage = env::temp_dir().join(unique("outboxd-test-garbage"));
    fs::write(&garbage, "not a certificate\n").unwrap();
    let [ca, garbage_path] = [certificates.ca(), &garbage].map(|path| path.to_str().unwrap());
    let case = |parameters: String| url("amqps", "localhost", listeners().tls, &parameters);
    let missing = "/nonexistent/file.pem";
    let client = certificates.client();
    let [certificate, key] = [&client.certificate, &client.key].map(|path| path.to_str().unwrap());
    check_refusals(&[
        (case(format!("cacertfile={missing}")), 78, &["amqp_url: cacertfile", missing, "No such file"]),
        (case(format!("cacertfile={garbage_path}")), 78, &["amqp_url: cacertfile", garbage_path]),
        (case("cacertfile=/".into()), 78, &["amqp_url: cacertfile /", "directory"]),
        (
            case(format!("cacertfile={ca}&certfile={missing}&keyfile={key}")),
            78,
            &["amqp_url: certfile", missing, "No such file"],
        ),
        (
            case(format!("cacertfile={ca}&certfile={certificate}&keyfile={missing}")),
            78,
            &["amqp_url: keyfile", missing, "No such file"],
        ),
        (
            case(format!("cacertfile={ca}&certfile={garbage_path}&keyfile={key}")),
            78,
            &["amqp_url: certfile", garbage_path],
        ),
        (case(format!("cacertfile={ca}&certfile={certificate}")), 78, &["go together"]),
    ]);
    fs::remove_file(garbage).unwrap();
}

#[test]
fn a_running_relay_goes_on_once_the_ca_file_is_right() {
    let certificates = Certificates::make();
    let file = env::temp_dir().join(unique("outboxd-test-ca"));
    fs::copy(certificates.other_ca(), &file).unwrap();
    let mut world = world();
    let queue = world.queue();
    let id = world.insert(&queue, "{}");
    let before = world.row(id);
    world.amqp_url = url("amqps", "localhost", listeners().tls, &trusting(&file));
    let mut relay = world.start(&["--interval", "200ms"]);
    let line = relay.wait_for_line("certificate verify failed", DEADLINE);
    assert!(line.contains("level=error "), "{line}");
    assert_eq!(world.row(id), before);
    fs::copy(certificates.ca(), &file).unwrap();
    relay.wait_for_line("claimed=1 published=1", DEADLINE);
    assert_published(&world.row(id));
    assert_eq!(world.arrivals(&queue), [before.event_id]);
    fs::remove_file(file).unwrap();
    let (_, log) = relay.output();
    assert_eq!(log.matches("level=error ").count(), 1, "told once\n{log}");
    assert!(!log.contains(PASSWORD), "{log}");
}
