//! TLS to the database: each `sslmode` asks for what libpq's does, and what is wrong is readable and without a secret.

use std::path::Path;
use std::sync::LazyLock;

use super::amqp_url;
use crate::harness::{Certificates, Identity, Output, Postgres, PostgresOptions, Proc, Servers};
use crate::world::{DEADLINE, OUTBOXD, init};

/// A password that no output may hold.
const PASSWORD: &str = "s3cr3t-marker";

struct Secured {
    server: Postgres,
    database: String,
}

/// A server that shows this certificate, takes `app` over TLS only, and `card` with a certificate of our authority only.
fn secured(identity: &Identity) -> Secured {
    let config = ["ssl = on", "ssl_cert_file = '{folder}/s.pem'", "ssl_key_file = '{folder}/s.key'"];
    let ca = std::fs::read_to_string(Certificates::make().ca()).unwrap();
    let options = PostgresOptions {
        config: config
            .iter()
            .map(|it| (*it).into())
            .chain(["ssl_ca_file = '{folder}/ca.pem'".into()])
            .collect(),
        hba: vec![
            "hostssl all card 127.0.0.1/32 trust clientcert=verify-ca".into(),
            "host all card 127.0.0.1/32 reject".into(),
            "hostssl all app 127.0.0.1/32 scram-sha-256".into(),
            "host all app 127.0.0.1/32 reject".into(),
        ],
        files: vec![
            ("s.pem".into(), identity.certificate_text()),
            ("s.key".into(), identity.key_text()),
            ("ca.pem".into(), ca),
        ],
        ..PostgresOptions::default()
    };
    let server = Postgres::start(&options);
    let database = server.database_from("outbox", init);
    database
        .connect()
        .batch_execute(&format!(
            "create role app login password '{PASSWORD}'; create role card login;
             grant insert on event_outbox to app, card"
        ))
        .unwrap();
    Secured { database: database.keep(), server }
}

fn right() -> &'static Secured {
    static SERVER: LazyLock<Secured> = LazyLock::new(|| secured(Certificates::make().server()));
    &SERVER
}

fn elsewhere() -> &'static Secured {
    static SERVER: LazyLock<Secured> = LazyLock::new(|| secured(Certificates::make().wrong_name()));
    &SERVER
}

impl Secured {
    /// Writes an event over TLS with these parameters, and expects the exit code.
    fn enqueue(&self, user: &str, host: &str, parameters: &str, code: i32) -> Output {
        let output = self.try_enqueue(user, host, parameters);
        assert_eq!(output.code, Some(code), "{parameters}: {output:?}");
        output
    }

    fn try_enqueue(&self, user: &str, host: &str, parameters: &str) -> Output {
        let password = if user == "app" { format!(":{PASSWORD}") } else { String::new() };
        let url = format!(
            "postgres://{user}{password}@{host}:{}/{}?{parameters}",
            self.server.port(),
            self.database
        );
        try_enqueue(&url)
    }
}

fn enqueue(url: &str, code: i32) -> Output {
    let output = try_enqueue(url);
    assert_eq!(output.code, Some(code), "{url}: {output:?}");
    output
}

fn try_enqueue(url: &str) -> Output {
    let environment = [("DATABASE_URL", url), ("AMQP_URL", amqp_url())];
    let output = Proc::run(OUTBOXD, &["enqueue", "x", "-vv"], &environment, DEADLINE);
    let told = format!("{}{}", output.stdout, output.stderr);
    assert!(!told.contains(PASSWORD) && !told.contains("panic"), "{told}");
    output
}

fn trusting(ca: &Path) -> String {
    format!("sslrootcert={}", ca.display())
}

#[test]
fn a_server_is_asked_for_what_sslmode_says() {
    let certificates = Certificates::make();
    let (ca, other) = (trusting(certificates.ca()), trusting(certificates.other_ca()));
    for mode in ["prefer", "allow", "require"] {
        right().enqueue("app", "localhost", &format!("sslmode={mode}"), 0);
        elsewhere().enqueue("app", "localhost", &format!("sslmode={mode}"), 0);
    }
    right().enqueue("app", "127.0.0.1", "", 0);
    for mode in ["verify-ca", "verify-full", "require"] {
        right().enqueue("app", "localhost", &format!("sslmode={mode}&{ca}"), 0);
        let output = right().enqueue("app", "localhost", &format!("sslmode={mode}&{other}"), 78);
        assert!(output.stderr.contains("certificate verify failed"), "{output:?}");
        assert!(output.stderr.contains("check the server's certificate, and sslrootcert"), "{output:?}");
    }
    right().enqueue(
        "app",
        "127.0.0.1",
        &format!("sslmode=verify-full&channel_binding=require&sslsni=0&{ca}"),
        0,
    );
    // The authority is right and the name is not.
    elsewhere().enqueue("app", "localhost", &format!("sslmode=verify-ca&{ca}"), 0);
    let output = elsewhere().enqueue("app", "localhost", &format!("sslmode=verify-full&{ca}"), 78);
    assert!(output.stderr.contains("mismatch"), "{output:?}");
    // The name decides, not where it leads.
    elsewhere().enqueue(
        "app",
        "elsewhere.example",
        &format!("sslmode=verify-full&hostaddr=127.0.0.1&{ca}"),
        0,
    );
    // Nobody whom the system trusts has signed it.
    for parameters in ["sslmode=verify-full", "sslrootcert=system"] {
        right().enqueue("app", "localhost", parameters, 78);
    }
}

#[test]
fn in_the_clear_is_told_from_encrypted() {
    let output = right().enqueue("app", "localhost", "sslmode=disable", 77);
    assert!(output.stderr.contains("no encryption") || output.stderr.contains("pg_hba.conf"), "{output:?}");
    let plain = Servers::shared().database_from("outbox", init);
    for mode in ["disable", "allow", "prefer"] {
        enqueue(&format!("{}?sslmode={mode}", plain.url), 0);
    }
    let ca = trusting(Certificates::make().ca());
    for parameters in
        ["sslmode=require".to_owned(), format!("sslmode=verify-ca&{ca}"), format!("sslmode=verify-full&{ca}")]
    {
        let output = enqueue(&format!("{}?{parameters}", plain.url), 78);
        assert!(output.stderr.contains("server does not support TLS"), "{output:?}");
    }
}

#[test]
fn a_client_certificate_says_who_we_are() {
    let certificates = Certificates::make();
    let showing = |identity: &Identity| {
        format!(
            "sslmode=require&sslcert={}&sslkey={}",
            identity.certificate.display(),
            identity.key.display()
        )
    };
    right().enqueue("card", "localhost", &showing(certificates.client()), 0);
    // What the server says of it may be lost in the end of the connection.
    let output = right().try_enqueue("card", "localhost", &showing(certificates.stranger()));
    assert!([Some(78), Some(69)].contains(&output.code), "{output:?}");
    assert!(output.stderr.contains("sslcert"), "{output:?}");
    let output = right().enqueue("card", "localhost", "sslmode=require", 77);
    assert!(output.stderr.contains("valid client certificate"), "{output:?}");
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let ca = Certificates::make().ca().display();
    for (parameters, expected) in [
        ("sslmode=verify-full&sslrootcert=/nowhere/ca.pem", "sslrootcert /nowhere/ca.pem: No such file"),
        ("sslmode=verify-full&sslrootcert=/etc/hostname", "sslrootcert /etc/hostname: "),
        ("sslmode=require&sslcert=/nowhere/c&sslkey=/nowhere/k", "sslcert /nowhere/c: No such file"),
        ("sslmode=require&sslcert=/etc/hostname&sslkey=/etc/hostname", "the key as PKCS#8"),
        (&format!("sslrootcert={ca}"), "add sslmode=verify-full or verify-ca"),
        ("sslmode=sometimes", "expected disable, allow, prefer, require, verify-ca or verify-full"),
    ] {
        let output = right().enqueue("app", "localhost", parameters, 78);
        assert!(output.stderr.contains(expected), "{expected}: {output:?}");
    }
}
