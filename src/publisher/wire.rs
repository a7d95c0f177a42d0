//! From our message to the client's, and from its errors to our words.

use amiquip::{AmqpProperties, AmqpValue, Channel, FieldTable, Publish};
use serde_json::{Map, Value};

use crate::error::{Error, Kind, Server};
use crate::message::{APP_ID, Message};

/// AMQP's code for a message that the broker writes to disk before it confirms it.
const PERSISTENT: u8 = 2;

/// Hands the message to the client's I/O thread. `Ok` says nothing about its fate.
pub(super) fn publish(channel: &Channel, message: &Message) -> amiquip::Result<()> {
    let mut properties = AmqpProperties::default()
        .with_content_type(message.content_type.clone())
        .with_delivery_mode(PERSISTENT)
        .with_message_id(message.message_id.clone())
        .with_type_(message.event_type.clone())
        .with_app_id(APP_ID.into());
    if let Some(seconds) = message.timestamp {
        properties = properties.with_timestamp(seconds);
    }
    if let Some(ms) = message.expiration_ms {
        properties = properties.with_expiration(ms.to_string());
    }
    if !message.headers.is_empty() {
        properties = properties.with_headers(table(&message.headers));
    }
    channel.basic_publish(
        message.exchange.as_str(),
        Publish {
            body: &message.body,
            routing_key: message.routing_key.clone(),
            mandatory: message.mandatory,
            immediate: false,
            properties,
        },
    )
}

/// Headers as the client takes them.
pub(crate) fn table(object: &Map<String, Value>) -> FieldTable {
    object.iter().map(|(name, value)| (name.clone(), field(value))).collect()
}

/// A JSON value as the AMQP value of the same type. Whole numbers beyond 64 bits with sign become doubles, as
/// RabbitMQ knows no larger integer.
fn field(value: &Value) -> AmqpValue {
    match value {
        Value::Null => AmqpValue::Void,
        Value::Bool(it) => AmqpValue::Boolean(*it),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => AmqpValue::LongLongInt(integer),
            None => AmqpValue::Double(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => AmqpValue::LongString(text.clone()),
        Value::Array(items) => AmqpValue::FieldArray(items.iter().map(field).collect()),
        Value::Object(inner) => AmqpValue::FieldTable(table(inner)),
    }
}

/// How a channel or a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// The broker closed the channel over something published on it.
    Channel { code: u16, text: String },
    /// The connection is gone, and why as far as it is known.
    Connection(String),
}

impl Ending {
    pub(super) fn of(error: &amiquip::Error) -> Self {
        match error {
            amiquip::Error::ServerClosedChannel { code, message, .. } => {
                Self::Channel { code: *code, text: message.clone() }
            }
            other => Self::Connection(in_words(other)),
        }
    }
}

/// The client's errors that hold a URL come from its own opening by URL, which we never use.
pub(super) fn in_words(error: &amiquip::Error) -> String {
    match error {
        amiquip::Error::ServerClosedConnection { code, message } => format!("{message} ({code})"),
        amiquip::Error::ServerClosedChannel { code, message, .. } => format!("{message} ({code})"),
        // Our own guard's words.
        amiquip::Error::IoErrorReadingSocket { source }
            if source.kind() == std::io::ErrorKind::InvalidData =>
        {
            source.to_string()
        }
        amiquip::Error::EventLoopDropped => "the connection ended".into(),
        amiquip::Error::IoThreadPanic => "the client's I/O thread ended by a panic".into(),
        other => other.to_string(),
    }
}

/// An error of ours for a session that could not be opened on the broker at `address`.
pub(super) fn opening_failed(address: &str, error: &amiquip::Error) -> Error {
    let what = |reason: &str| format!("opening a session on broker {address} failed: {reason}");
    match error {
        // Says the client also when the broker ended, or fell silent, during the login.
        amiquip::Error::InvalidCredentials => Error::new(
            Kind::Denied(Server::Broker),
            what("login refused, or the broker ended the connection during the login"),
        )
        .with_remedy("check user and password in AMQP_URL"),
        amiquip::Error::ServerClosedConnection { code: 530 | 403, message } => {
            Error::new(Kind::Denied(Server::Broker), what(message))
                .with_remedy("check the virtual host in AMQP_URL and the user's permissions on it")
        }
        #[cfg(feature = "tls")]
        amiquip::Error::TlsHandshake { source } if source.to_string().contains("certificate") => {
            Error::new(Kind::Configuration, what(&source.to_string()))
                .with_remedy("check the broker's certificate, and cacertfile in AMQP_URL")
        }
        #[cfg(feature = "tls")]
        amiquip::Error::TlsHandshake { source } => {
            Error::new(Kind::Unavailable(Server::Broker), what(&format!("the TLS handshake: {source}")))
                .with_remedy("is it a port for TLS?")
        }
        // With TLS 1.3 the broker refuses our certificate after the handshake.
        amiquip::Error::IoErrorReadingSocket { source } if source.to_string().contains("alert") => {
            Error::new(Kind::Configuration, what(&source.to_string())).with_remedy(
                "the broker wants another client certificate: see certfile and keyfile in AMQP_URL",
            )
        }
        amiquip::Error::UnexpectedSocketClose | amiquip::Error::MalformedFrame => {
            Error::new(Kind::Unavailable(Server::Broker), what(&in_words(error)))
                .with_remedy("is it RabbitMQ's port, and one without TLS?")
        }
        other => Error::new(Kind::Unavailable(Server::Broker), what(&in_words(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values_keep_their_json_types() {
        let cases = [
            ("null", AmqpValue::Void),
            ("true", AmqpValue::Boolean(true)),
            ("-1", AmqpValue::LongLongInt(-1)),
            ("9223372036854775807", AmqpValue::LongLongInt(i64::MAX)),
            ("18446744073709551615", AmqpValue::Double(18_446_744_073_709_551_615.0)),
            ("1.5", AmqpValue::Double(1.5)),
            (r#""x""#, AmqpValue::LongString("x".into())),
            (
                r#"[1,"x"]"#,
                AmqpValue::FieldArray(vec![AmqpValue::LongLongInt(1), AmqpValue::LongString("x".into())]),
            ),
        ];
        for (json, expected) in cases {
            assert_eq!(field(&serde_json::from_str(json).unwrap()), expected, "{json}");
        }
    }
}
