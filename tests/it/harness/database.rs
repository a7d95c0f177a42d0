//! Databases: one per test, cloned from a template.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postgres::{Client, NoTls};

/// Databases of one PostgreSQL server, ours or another's.
#[derive(Clone)]
pub struct Cluster(Arc<Shared>);

struct Shared {
    admin_url: String,
    /// Whether databases need not be dropped, because the server ends with its test.
    disposable: bool,
    /// The session that creates and drops databases.
    admin: Mutex<Option<Client>>,
    /// The names of the prepared databases, by the name of the template.
    templates: Mutex<HashMap<String, String>>,
}

impl Cluster {
    /// `admin_url` must name a user who may create databases.
    pub fn new(admin_url: String, disposable: bool) -> Cluster {
        let (admin, templates) = (Mutex::new(None), Mutex::new(HashMap::new()));
        Cluster(Arc::new(Shared { admin_url, disposable, admin, templates }))
    }

    /// A new empty database.
    pub fn database(&self) -> Database {
        self.create(None)
    }

    /// A clone of the database that `prepare` has filled, once per template name.
    pub fn database_from(&self, template: &str, prepare: fn(&str)) -> Database {
        // The lock is held while preparing, so that others wait for the template instead of making theirs.
        let mut templates = lock(&self.0.templates);
        if !templates.contains_key(template) {
            let database = self.create(None);
            prepare(&database.url);
            templates.insert(template.to_owned(), database.keep());
        }
        let source = templates.get(template).cloned();
        drop(templates);
        self.create(source.as_deref())
    }

    fn create(&self, template: Option<&str>) -> Database {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        // The process id keeps test processes apart that use one server together.
        let name = format!("outboxd_test_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let template = template.map_or(String::new(), |template| format!(" template {template}"));
        self.execute(&format!("create database {name}{template}"))
            .unwrap_or_else(|error| panic!("cannot create a database: {}", describe(&error)));
        let url = with_database(&self.0.admin_url, &name);
        Database { url, name, cluster: self.clone(), keep: self.0.disposable }
    }

    fn execute(&self, statement: &str) -> Result<(), postgres::Error> {
        let mut admin = lock(&self.0.admin);
        // The server may have been restarted since the last time.
        if admin.as_ref().is_none_or(Client::is_closed) {
            *admin = Some(Client::connect(&self.0.admin_url, NoTls)?);
        }
        admin.as_mut().map_or(Ok(()), |client| client.batch_execute(statement))
    }
}

/// A database of one test. It is dropped with this value, even if sessions are still open.
pub struct Database {
    pub url: String,
    pub name: String,
    cluster: Cluster,
    keep: bool,
}

impl Database {
    /// A new session.
    pub fn connect(&self) -> Client {
        Client::connect(&self.url, NoTls)
            .unwrap_or_else(|error| panic!("cannot connect to {}: {}", self.url, describe(&error)))
    }

    /// Leaves the database in place, and returns its name.
    pub fn keep(mut self) -> String {
        self.keep = true;
        self.name.clone()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if !self.keep {
            // A test that fails already must not fail again here.
            let _ = self.cluster.execute(&format!("drop database if exists {} with (force)", self.name));
        }
    }
}

/// The server's own words; the client's error alone says only "db error".
pub fn describe(error: &postgres::Error) -> String {
    error
        .as_db_error()
        .map_or_else(|| error.to_string(), |db| format!("{} ({})", db.message(), db.code().code()))
}

/// The URL with another database.
fn with_database(url: &str, database: &str) -> String {
    let (address, parameters) = url.split_once('?').map_or((url, None), |(left, right)| (left, Some(right)));
    let host = address.find("://").unwrap_or_else(|| panic!("the database must be given as a URL")) + 3;
    let end = address[host..].find('/').map_or(address.len(), |slash| host + slash);
    let parameters = parameters.map_or(String::new(), |parameters| format!("?{parameters}"));
    format!("{}/{database}{parameters}", &address[..end])
}

/// A failed test must not make all later ones fail on the same lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
