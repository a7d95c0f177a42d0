//! A broker that wants to know its clients by their certificates.

use std::fs;

use super::{PASSWORD, check_delivery, listeners, showing, trusting, url, world};
use crate::harness::{Certificates, Proc};
use crate::world::{DEADLINE, OUTBOXD};

#[test]
fn a_broker_that_wants_a_certificate_gets_the_one_in_the_url() {
    let certificates = Certificates::make();
    let parameters = trusting(certificates.ca()) + &showing(certificates.client());
    check_delivery(&url("amqps", "localhost", listeners().strict, &parameters));
    // Where none is wanted it does no harm.
    check_delivery(&url("amqps", "localhost", listeners().tls, &parameters));
}

#[test]
fn a_broker_that_wants_a_certificate_takes_no_other_client() {
    let certificates = Certificates::make();
    let ca = trusting(certificates.ca());
    let strict = listeners().strict;
    let mut world = world();
    let id = world.insert("x", "{}");
    let before = world.row(id);
    for client in [String::new(), showing(certificates.stranger())] {
        let url = url("amqps", "localhost", strict, &(ca.clone() + &client));
        let environment = [("DATABASE_URL", world.database.url.as_str()), ("AMQP_URL", &url)];
        let output = Proc::run(OUTBOXD, &["once"], &environment, DEADLINE);
        let last = output.stderr.lines().last().unwrap();
        assert!(last.starts_with("outboxd: opening a session on broker localhost:"), "{output:?}");
        // With TLS 1.3 the refusal comes after the handshake, and with a reset that may destroy its reason.
        match output.code {
            Some(78) => assert!(last.contains("see certfile and keyfile in AMQP_URL"), "{last}"),
            code => assert_eq!(code, Some(69), "{output:?}"),
        }
        assert!(!last.contains(PASSWORD), "{last}");
    }
    assert_eq!(world.row(id), before);
}

#[test]
fn a_certificate_alone_says_who_we_are_with_the_external_mechanism() {
    let (listeners, certificates) = (listeners(), Certificates::make());
    // The plugin is a part of RabbitMQ; without it the broker offers no such login.
    let file = listeners.rabbit.folder().join("enabled_plugins");
    fs::write(&file, "[rabbitmq_auth_mechanism_ssl].\n").unwrap();
    listeners.rabbit.eval(&format!("rabbit_plugins:ensure(\"{}\").", file.display()));
    // The certificate's common name.
    listeners.rabbit.ctl(&["add_user", "outboxd", "not used"]);
    listeners.rabbit.ctl(&["set_permissions", "outboxd", ".*", ".*", ".*"]);
    let mut world = world();
    let queue = world.queue();
    let id = world.insert(&queue, "{}");
    let url = format!(
        "amqps://localhost:{}/%2F?{}{}&auth_mechanism=external",
        listeners.strict,
        trusting(certificates.ca()),
        showing(certificates.client())
    );
    let database_url = world.database.url.clone();
    let environment = [("DATABASE_URL", database_url.as_str()), ("AMQP_URL", &url)];
    let output = Proc::run(OUTBOXD, &["once"], &environment, DEADLINE);
    assert_eq!(output.code, Some(0), "{output:?}");
    super::assert_published(&world.row(id));
    assert_eq!(world.arrivals(&queue).len(), 1);
    // It is that user who came, and without rights it is refused by name.
    listeners.rabbit.ctl(&["clear_permissions", "outboxd"]);
    let output = Proc::run(OUTBOXD, &["once"], &environment, DEADLINE);
    assert_eq!(output.code, Some(77), "{output:?}");
    assert!(output.stderr.contains("refused for user 'outboxd'"), "{output:?}");
}
