//! TLS to the broker, with the system's library: who the broker must be, and who we are to it.

use std::fs;

use native_tls::{Certificate, Identity, TlsConnector};

use crate::error::{Error, Kind, Result};

use super::url::TlsFiles;

/// A connector that accepts a broker whose certificate is signed by the CA in `cacertfile`, or by one that the
/// system trusts when there is none. It always verifies.
///
/// # Errors
/// Names the file that cannot be read or understood.
pub(super) fn connector(files: &TlsFiles) -> Result<TlsConnector> {
    let mut builder = TlsConnector::builder();
    if let Some(path) = &files.ca {
        let certificate = Certificate::from_pem(&read("cacertfile", path)?)
            .map_err(|error| unusable("cacertfile", path, &error))?;
        builder.disable_built_in_roots(true).add_root_certificate(certificate);
    }
    if let (Some(certificate_path), Some(key_path)) = (&files.certificate, &files.key) {
        let (certificate, key) = (read("certfile", certificate_path)?, read("keyfile", key_path)?);
        let identity = Identity::from_pkcs8(&certificate, &key).map_err(|error| {
            unusable("certfile and keyfile (PEM, the key as PKCS#8)", certificate_path, &error)
        })?;
        builder.identity(identity);
    }
    builder.build().map_err(|error| Error::new(Kind::Internal, format!("starting TLS failed: {error}")))
}

fn read(parameter: &str, path: &str) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| unusable(parameter, path, &error))
}

fn unusable(parameter: &str, path: &str, reason: &dyn std::fmt::Display) -> Error {
    Error::new(Kind::Configuration, format!("amqp_url: {parameter} {path}: {reason}"))
}
