//! The `PG*` variables that stand for what the database's URL leaves out. Which there are, and what they are called in
//! a URL; what their values mean is the outbox's business.

use super::Secret;

/// The variables, and libpq's keyword for each (PostgreSQL's manual, 34.15). Those of libpq that are not here, such as
/// `PGSERVICE`, are not looked at.
const VARIABLES: &[(&str, &str)] = &[
    ("PGHOST", "host"),
    ("PGPORT", "port"),
    ("PGDATABASE", "dbname"),
    ("PGUSER", "user"),
    ("PGPASSWORD", "password"),
    ("PGPASSFILE", "passfile"),
    ("PGAPPNAME", "application_name"),
    ("PGCONNECT_TIMEOUT", "connect_timeout"),
    ("PGOPTIONS", "options"),
    ("PGSSLMODE", "sslmode"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGSSLCERT", "sslcert"),
    ("PGSSLKEY", "sslkey"),
    ("PGSSLSNI", "sslsni"),
    ("PGCHANNELBINDING", "channel_binding"),
    ("PGTARGETSESSIONATTRS", "target_session_attrs"),
];

/// Those of libpq that would change where the database is or how it is spoken to, and are not looked at.
const IGNORED: &[&str] = &[
    "PGHOSTADDR",
    "PGSERVICE",
    "PGSERVICEFILE",
    "PGSSLCRL",
    "PGSSLCRLDIR",
    "PGREQUIREAUTH",
    "PGREQUIREPEER",
    "PGSSLMINPROTOCOLVERSION",
    "PGSSLMAXPROTOCOLVERSION",
    "PGGSSENCMODE",
    "PGTZ",
];

/// Whether libpq looks at this environment variable and outboxd does not: worth a warning.
pub fn is_ignored_variable(name: &str) -> bool {
    IGNORED.contains(&name)
}

/// The value of a `PG*` variable.
#[derive(Debug, Clone)]
pub struct Fallback {
    variable: &'static str,
    keyword: &'static str,
    value: Secret,
}

impl Fallback {
    /// One for this variable; none when it is not one of libpq's that are looked at.
    pub fn new(variable: &str, value: Secret) -> Option<Self> {
        let (variable, keyword) = VARIABLES.iter().find(|(name, _)| *name == variable)?;
        Some(Self { variable, keyword, value })
    }

    /// The variable's name, such as `PGHOST`.
    pub fn variable(&self) -> &'static str {
        self.variable
    }

    /// Its name in a URL, such as `host`.
    pub fn keyword(&self) -> &'static str {
        self.keyword
    }

    /// Its value.
    pub fn value(&self) -> &Secret {
        &self.value
    }
}

/// Whether an environment variable of this name stands for a part of the database's URL.
pub fn is_libpq_variable(name: &str) -> bool {
    VARIABLES.iter().any(|(variable, _)| *variable == name)
}
