//! A TLS connector that is made once the server has said that it speaks TLS. Making one reads every authority that the
//! system trusts, which takes longer than the rest of opening a session, and a server on the same machine or a private
//! network often speaks none.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;

use postgres::Socket;
use postgres::tls::{MakeTlsConnect, TlsConnect};
use postgres_native_tls::{TlsConnector, TlsStream};

use super::tls::Tls;

type Failure = Box<dyn Error + Send + Sync>;

/// What makes the connector, for a session that may end up without.
pub(super) struct LateTls(pub(super) Tls);

/// The same, for one server.
pub(super) struct LateTlsTo {
    tls: Tls,
    host: String,
}

impl MakeTlsConnect<Socket> for LateTls {
    type Stream = TlsStream<Socket>;
    type TlsConnect = LateTlsTo;
    type Error = Failure;

    fn make_tls_connect(&mut self, host: &str) -> Result<LateTlsTo, Failure> {
        Ok(LateTlsTo { tls: self.0.clone(), host: host.into() })
    }
}

impl TlsConnect<Socket> for LateTlsTo {
    type Stream = TlsStream<Socket>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<TlsStream<Socket>, Failure>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let connector = TlsConnector::new(self.tls.connector()?, &self.host);
            Ok(connector.connect(socket).await?)
        })
    }
}
