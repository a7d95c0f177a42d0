//! Where the program shows how it is doing. The library has no use for it: a host has its own ways.

use core::net::SocketAddr;
use std::path::PathBuf;

use super::given::Reader;
use super::value;

/// Where metrics are to be found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Where `run` answers HTTP. Default: nowhere.
    pub addr: Option<SocketAddr>,
    /// The file that `once` leaves at its end, and `run` now and then. Default: none.
    pub file: Option<PathBuf>,
}

pub(super) fn read_metrics(reader: &mut Reader<'_>) -> Option<Metrics> {
    // No name, so that nothing has to be looked up, and nothing listens where nobody expected it.
    let addr = reader.read("metrics_addr", |text| value::or_none(text, |text| text.parse().ok()));
    let file = reader.read("metrics_file", |text| value::or_none(text, path));
    Some(Metrics { addr: addr?, file: file? })
}

/// A path that names a file, as far as that can be told without looking.
fn path(text: &str) -> Option<PathBuf> {
    let path = PathBuf::from(text);
    (!text.contains('\0') && path.file_name().is_some() && !text.ends_with('/')).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Given, Origin};
    use super::*;

    fn read(name: &str, value: &str) -> Result<Metrics, String> {
        let given = [("database_url", "postgres://h/d"), ("amqp_url", "amqp://h"), (name, value)]
            .map(|(name, value)| Given { name: name.into(), value: value.into(), origin: Origin::Code });
        Config::from_given(&given, &[]).map(|it| it.metrics).map_err(|problems| problems.to_string())
    }

    #[test]
    fn addresses_and_files_are_told_from_what_is_none() {
        assert_eq!(read("metrics_addr", "none"), Ok(Metrics::default()));
        let addr = |text: &str| read("metrics_addr", text).map(|it| it.addr.map(|addr| addr.to_string()));
        assert_eq!(addr("127.0.0.1:9790"), Ok(Some("127.0.0.1:9790".into())));
        assert_eq!(addr("[::1]:0"), Ok(Some("[::1]:0".into())));
        for wrong in ["localhost:9790", "127.0.0.1", ":9790", "9790", "", "127.0.0.1:70000"] {
            let problem = addr(wrong).unwrap_err();
            assert!(problem.contains("expected none, or an IP address with a port"), "{problem}");
        }
        let file = |text: &str| read("metrics_file", text).map(|it| it.file);
        assert_eq!(file("/var/lib/x/outboxd.prom"), Ok(Some("/var/lib/x/outboxd.prom".into())));
        for wrong in ["", "/", "..", "/var/lib/"] {
            assert!(file(wrong).is_err(), "{wrong:?}");
        }
    }
}
