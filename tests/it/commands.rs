//! The commands as an operator meets them: what they print, and the code they end with.
//!
//! Every URL that is handed to a command here holds the same marked password where it can, and no output may
//! repeat it.

mod bounded;
mod configuration;
mod enqueue;
mod exits;
mod help;
mod once;
mod progress;
mod status;
mod unusable;

use url::Url;

use crate::harness::{Output, Proc, free_port};
use crate::world::{DEADLINE, OUTBOXD};

/// A password that no output may hold.
const PASSWORD: &str = "s3cr3t-marker";

/// Runs a command that must end with this code and must not tell the password.
fn ends(code: i32, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let output = Proc::run(OUTBOXD, arguments, environment, DEADLINE);
    assert_eq!(output.code, Some(code), "{arguments:?}: {output:?}");
    let told = format!("{}{}", output.stdout, output.stderr);
    assert!(!told.contains(PASSWORD), "{arguments:?}: {output:?}");
    assert!(!told.contains("panic"), "{arguments:?}: {output:?}");
    output
}

/// A database where nobody listens.
fn no_database() -> String {
    format!("postgres://app:{PASSWORD}@127.0.0.1:{}/app", free_port())
}

/// A broker where nobody listens.
fn no_broker() -> String {
    format!("amqp://app:{PASSWORD}@127.0.0.1:{}/%2F", free_port())
}

/// The URL with a part changed.
fn changed(url: &str, change: impl FnOnce(&mut Url)) -> String {
    let mut url = Url::parse(url).unwrap();
    change(&mut url);
    url.into()
}
