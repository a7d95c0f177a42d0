//! Where the values that are in effect come from, and which secrets are given where everyone sees them.

use super::given::{Given, Origin, effective, holds_login, setting_of};
use super::libpq::is_libpq_variable;
use super::setting::{SETTINGS, Setting};

/// Where each value that is not a default comes from, in the order of the settings, such as `--workers` or `window in
/// outboxd.toml line 3`; and the `PG*` variables that are set. No value is told.
pub fn origins(given: &[Given]) -> Vec<String> {
    let in_effect = SETTINGS.iter().filter_map(|setting| effective(given, setting.name));
    // The password file is looked for whether anyone names it or not.
    let stands_in = |it: &&Given| {
        it.origin == Origin::Environment
            && is_libpq_variable(&it.name)
            && it.name != "PGPASSFILE"
            && !it.value.is_empty()
    };
    in_effect.chain(given.iter().filter(stands_in)).map(|given| given.origin.place(&given.name)).collect()
}

/// The settings whose flags hold a password: everyone on the machine can see that.
pub fn exposed_flags(given: &[Given]) -> Vec<&'static Setting> {
    let flags = given.iter().filter(|it| it.origin == Origin::Flag && holds_password(&it.value));
    flags.filter_map(setting_of).filter(|setting| setting.secret).collect()
}

/// Whether an address, even one that means nothing, may hold a password.
fn holds_password(text: &str) -> bool {
    text.contains("password") || holds_login(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(name: &str, value: &str, origin: Origin) -> Given {
        Given { name: name.into(), value: value.into(), origin }
    }

    #[test]
    fn the_place_that_wins_is_told_and_no_value() {
        let file = Origin::File { path: "o.toml".into(), line: Some(3) };
        let all = [
            given("OUTBOXD_WORKERS", "2", Origin::Environment),
            given("--workers", "3", Origin::Flag),
            given("window", "4", file.clone()),
            given("amqp_url", "secret", file),
            given("amqp_url", "secret", Origin::Credential),
            given("database_url", "secret", Origin::Credential),
            given("PGUSER", "app", Origin::Environment),
            given("PGPORT", "", Origin::Environment),
            given("PGPASSFILE", "/home/app/.pgpass", Origin::Environment),
        ];
        let expected = [
            "the credential database_url",
            "amqp_url in o.toml line 3",
            "--workers",
            "window in o.toml line 3",
            "PGUSER",
        ];
        assert_eq!(origins(&all), expected);
    }

    #[test]
    fn a_password_in_a_flag_is_seen_whatever_its_form() {
        for (value, expected) in [
            ("postgres://u:p@h/d", true),
            ("postgres://u:p@h:x/d", true),
            ("amqp://u:a@b@h", true),
            ("host=h password=p", true),
            ("postgres://h/d?password=p", true),
            ("postgres://u@h:5432/d", false),
            ("postgres://h:5432/d", false),
            ("host=h user=u", false),
            ("", false),
        ] {
            assert_eq!(holds_password(value), expected, "{value}");
            let flags = exposed_flags(&[given("--database-url", value, Origin::Flag)]);
            assert_eq!(flags.len(), usize::from(expected), "{value}");
        }
        let elsewhere = given("DATABASE_URL", "postgres://u:p@h", Origin::Environment);
        assert!(exposed_flags(&[elsewhere, given("--table", "a:b@c", Origin::Flag)]).is_empty());
    }
}
