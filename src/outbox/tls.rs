//! TLS to the database: what libpq's `sslmode` and its files ask for, and a connector that does it.

#[cfg(feature = "tls")]
use std::fs;

#[cfg(feature = "tls")]
use native_tls::{Certificate, Identity, TlsConnector};

#[cfg(feature = "tls")]
use crate::error::{Error, Kind, Result};

use super::parameters::Parameters;

/// How much is asked of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mode {
    /// In the clear.
    Disable,
    /// Encrypted if the server can; whoever it is.
    Prefer,
    /// Encrypted; whoever it is.
    Require,
    /// Its certificate is signed by the root.
    VerifyCa,
    /// It is also for the host.
    VerifyFull,
}

/// The authorities that are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Root {
    /// Those of the system.
    System,
    /// Those in a PEM file.
    File(String),
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tls {
    pub(super) mode: Mode,
    root: Root,
    /// Our certificate and its key, PEM files.
    identity: Option<(String, String)>,
    sni: bool,
}

impl Tls {
    /// Takes what is TLS's out of the parameters.
    ///
    /// # Errors
    /// What does not go together; names parameters, never values.
    pub(super) fn take(parameters: &mut Parameters) -> std::result::Result<Self, String> {
        let asked = match parameters.remove("sslmode").as_deref() {
            None => None,
            Some("disable") => Some(Mode::Disable),
            // libpq tries in the clear first; encrypting first keeps the promise of `allow` too.
            Some("allow" | "prefer") => Some(Mode::Prefer),
            Some("require") => Some(Mode::Require),
            Some("verify-ca") => Some(Mode::VerifyCa),
            Some("verify-full") => Some(Mode::VerifyFull),
            Some(_) => {
                return Err(
                    "sslmode: expected disable, allow, prefer, require, verify-ca or verify-full".into()
                );
            }
        };
        let root = parameters.remove("sslrootcert");
        let mode = match (asked, root.as_deref()) {
            (None | Some(Mode::VerifyFull), Some("system")) => Mode::VerifyFull,
            (Some(_), Some("system")) => {
                return Err("sslrootcert=system goes with sslmode=verify-full only".into());
            }
            (None | Some(Mode::Prefer), Some(_)) => {
                return Err(
                    "sslrootcert asks for a verified server: add sslmode=verify-full or verify-ca".into()
                );
            }
            // As libpq has it, for those who believe that `require` verifies.
            (Some(Mode::Require), Some(_)) => Mode::VerifyCa,
            // Whoever has a certificate by any public authority would do.
            (Some(Mode::VerifyCa), None) => return Err("sslmode=verify-ca needs sslrootcert".into()),
            (asked, _) => asked.unwrap_or(Mode::Prefer),
        };
        let root = match root {
            Some(path) if path != "system" => Root::File(path),
            _ => Root::System,
        };
        let identity = match (parameters.remove("sslcert"), parameters.remove("sslkey")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err("sslcert and sslkey go together".into()),
        };
        let sni = match parameters.remove("sslsni").as_deref() {
            None | Some("1") => true,
            Some("0") => false,
            Some(_) => return Err("sslsni: expected 0 or 1".into()),
        };
        if cfg!(not(feature = "tls")) && mode > Mode::Prefer {
            return Err("asks for TLS, and this build has none: build it with the feature tls".into());
        }
        Ok(Self { mode, root, identity, sni })
    }

    /// Whether we show a certificate of ours.
    pub(super) fn shows_certificate(&self) -> bool {
        self.identity.is_some()
    }
}

#[cfg(feature = "tls")]
impl Tls {
    /// Whether the server decides if there is TLS, and no file of ours may be wrong.
    pub(super) fn is_optional(&self) -> bool {
        self.mode == Mode::Prefer && self.identity.is_none()
    }

    /// A connector that asks the server for what `sslmode` says.
    ///
    /// # Errors
    /// Names the file that cannot be read or understood.
    pub(super) fn connector(&self) -> Result<TlsConnector> {
        let mut builder = TlsConnector::builder();
        builder
            .danger_accept_invalid_certs(self.mode < Mode::VerifyCa)
            .danger_accept_invalid_hostnames(self.mode < Mode::VerifyFull)
            .use_sni(self.sni);
        postgres_native_tls::set_postgresql_alpn(&mut builder);
        if let Root::File(path) = &self.root {
            builder.disable_built_in_roots(true);
            let roots = Certificate::stack_from_pem(&read("sslrootcert", path)?)
                .map_err(|error| unusable("sslrootcert", path, &error))?;
            if roots.is_empty() {
                return Err(unusable("sslrootcert", path, &"holds no certificate in PEM"));
            }
            for root in roots {
                builder.add_root_certificate(root);
            }
        }
        if let Some((certificate_path, key_path)) = &self.identity {
            let (certificate, key) = (read("sslcert", certificate_path)?, read("sslkey", key_path)?);
            let identity = Identity::from_pkcs8(&certificate, &key).map_err(|error| {
                unusable("sslcert and sslkey (PEM, the key as PKCS#8)", certificate_path, &error)
            })?;
            builder.identity(identity);
        }
        builder.build().map_err(|error| Error::new(Kind::Internal, format!("starting TLS failed: {error}")))
    }
}

#[cfg(feature = "tls")]
fn read(parameter: &str, path: &str) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| unusable(parameter, path, &error))
}

#[cfg(feature = "tls")]
fn unusable(parameter: &str, path: &str, reason: &dyn std::fmt::Display) -> Error {
    Error::new(Kind::Configuration, format!("database_url: {parameter} {path}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::super::parameters::parse;
    use super::*;

    fn mode(query: &str) -> std::result::Result<Mode, String> {
        Tls::take(&mut parse(&format!("postgres://h/d?{query}")).unwrap()).map(|tls| tls.mode)
    }

    #[test]
    #[cfg(feature = "tls")]
    fn modes_are_those_of_libpq() {
        for (query, expected) in [
            ("", Mode::Prefer),
            ("sslmode=disable", Mode::Disable),
            ("sslmode=disable&sslrootcert=/ca", Mode::Disable),
            ("sslmode=allow", Mode::Prefer),
            ("sslmode=prefer", Mode::Prefer),
            ("sslmode=require", Mode::Require),
            ("sslmode=require&sslrootcert=/ca", Mode::VerifyCa),
            ("sslmode=verify-ca&sslrootcert=/ca", Mode::VerifyCa),
            ("sslmode=verify-full", Mode::VerifyFull),
            ("sslmode=verify-full&sslrootcert=/ca", Mode::VerifyFull),
            ("sslrootcert=system", Mode::VerifyFull),
        ] {
            assert_eq!(mode(query), Ok(expected), "{query}");
        }
    }

    #[test]
    fn what_would_verify_nothing_is_refused() {
        for query in [
            "sslmode=secret",
            "sslmode=verify-ca",
            "sslmode=verify-ca&sslrootcert=system",
            "sslmode=require&sslrootcert=system",
            "sslrootcert=/secret",
            "sslmode=prefer&sslrootcert=/secret",
            "sslcert=/secret",
            "sslkey=/secret",
            "sslsni=secret",
        ] {
            let reason = mode(query).unwrap_err();
            assert!(!reason.contains("secret"), "{reason}");
        }
    }
}
