//! Hearing of commits: a session that listens on the table's channel, and a NOTIFY from another one that tests it.

use std::time::Duration;

use postgres::Client;
use postgres::fallible_iterator::FallibleIterator;
use postgres::types::Type;

use crate::config::{Database, Secret, TableName};
use crate::error::{Error, Kind, Result, Server};

use super::failure::failure;
use super::notify;
use super::session::{Opening, Session};
use super::shape;
use super::sql::{CHANNEL, NOTIFY, UNLISTEN, listen, quoted, quoted_table};

/// What a session that listens may take beyond the time for which it is to wait.
const SLACK: Duration = Duration::from_secs(5);

/// The most messages that one wait returns. They are someone else's too, up to 8,000 bytes each, and may come faster than
/// they are read; what is left is returned by the next.
const MESSAGES_MAX: usize = 256;

/// Whoever wants to hear of commits. It has one session at most that listens, and opens another for each test.
pub struct Listener {
    /// Where it listens.
    database: Database,
    /// Where events are written, and tests are sent from.
    writers: Database,
    /// Whether the two differ.
    has_own_url: bool,
    session: Option<Session>,
    channel: String,
    opening: Opening,
    testing: Opening,
}

impl Listener {
    /// A listener without a session. It listens at `listen_url` if there is one, else where the outbox is.
    pub fn new(database: &Database, listen_url: Option<&Secret>) -> Self {
        let url = listen_url.unwrap_or(&database.url).clone();
        Self {
            database: Database { url, ..database.clone() },
            writers: database.clone(),
            has_own_url: listen_url.is_some(),
            session: None,
            channel: String::new(),
            opening: Opening::default(),
            testing: Opening::default(),
        }
    }

    /// The channel that it listens on, once it has.
    pub fn channel(&self) -> &str {
        &self.channel
    }

    /// Begins to listen, on a new session. Whether a trigger of the table tells of what is written.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses: a standby does. There is no such table.
    pub fn open(&mut self) -> Result<bool> {
        self.session = None;
        let mut session = self.opening.open(&self.database).map_err(|error| self.explained(error))?;
        let table = self.database.table.clone();
        let (channel, is_told) =
            session.within_limits("beginning to listen", move |client| begin(client, &table))?;
        self.channel = channel.ok_or_else(|| {
            let what = format!("table {} does not exist", self.database.table);
            let remedy = format!("create it with: {}", shape::init(&self.database.table));
            Error::new(Kind::Configuration, what).with_remedy(remedy)
        })?;
        self.session = Some(session);
        Ok(is_told)
    }

    /// Whether it listens where the outbox is, and not at a `listen_url` of its own.
    pub fn is_at_outbox(&self) -> bool {
        !self.has_own_url
    }

    /// A login that is refused at `listen_url` is not to be looked for in the other address.
    fn explained(&self, error: Error) -> Error {
        match error.kind() {
            Kind::Denied(_) if self.has_own_url => error.with_remedy("check user and password in listen_url"),
            _ => error,
        }
    }

    /// Waits for messages, at most for `limit`; none when there was none, and 256 at most.
    ///
    /// # Errors
    /// The session is gone: what was told meanwhile is not heard any more.
    pub fn wait(&mut self, limit: Duration) -> Result<Vec<String>> {
        let what = "listening";
        let Some(session) = self.session.as_mut() else {
            return Err(unavailable(what, "there is no session"));
        };
        let heard = session.call_for(limit + SLACK, what, move |client| hear(client, limit, what));
        if heard.is_err() {
            self.session = None;
        }
        heard
    }

    /// Sends a message from a session of its own, which ends then.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses.
    pub fn tell(&mut self, message: &str) -> Result<()> {
        let mut session = self.testing.open(&self.writers)?;
        let (table, message) = (quoted_table(&self.writers.table), message.to_owned());
        session.within_limits("testing the listener", move |client| {
            client.query_typed(NOTIFY, &[(&table, Type::TEXT), (&message, Type::TEXT)]).map(drop)
        })
    }

    /// Listens no more. Behind a pooler, whose sessions others go on using, it leaves nothing behind if it can.
    pub fn close(&mut self) {
        if let Some(mut session) = self.session.take() {
            let what = "ending to listen";
            let ended = session.call_for(SLACK, what, move |client| {
                client.batch_execute(UNLISTEN).map_err(|error| failure(what, &error))
            });
            if let Err(error) = ended {
                log::debug!("{error}");
            }
        }
    }
}

/// Listens; the channel, if there is such a table, and whether a trigger tells of events there.
fn begin(
    client: &mut Client,
    table: &TableName,
) -> std::result::Result<(Option<String>, bool), postgres::Error> {
    let parameters = [quoted_table(table), notify::signature(table)];
    let [name, function] = &parameters;
    let row = client.query_typed_one(CHANNEL, &[(name, Type::TEXT), (function, Type::TEXT)])?;
    let channel: Option<String> = row.try_get(0)?;
    if let Some(channel) = &channel {
        client.batch_execute(&listen(&quoted(channel)))?;
    }
    Ok((channel, row.try_get(1)?))
}

fn hear(client: &mut Client, limit: Duration, what: &str) -> Result<Vec<String>> {
    let failed = |error: postgres::Error| failure(what, &error);
    let mut heard = Vec::new();
    let first = client.notifications().timeout_iter(limit).next().map_err(failed)?;
    heard.extend(first.map(|it| it.payload().to_owned()));
    // What came along with it.
    let more: Vec<_> = client.notifications().iter().take(MESSAGES_MAX - 1).collect().map_err(failed)?;
    heard.extend(more.iter().map(|it| it.payload().to_owned()));
    if client.is_closed() {
        return Err(unavailable(what, "the server closed the session"));
    }
    Ok(heard)
}

fn unavailable(what: &str, why: &str) -> Error {
    Error::new(Kind::Unavailable(Server::Database), format!("{what} failed: {why}"))
}
