//! The configuration file: its text to what it gives. Parses and says where; what the values mean is not
//! known here.
//!
//! The parser's own way to print an error shows the line it is in, which may hold a password, so it is never
//! used.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::given::{Given, GivenRoute, Origin, Problem, Problems};
use super::setting::{RouteKey, Setting};

/// Reads the text of a configuration file in TOML; `path` is only what problems call it.
///
/// # Errors
/// The place and kind of the first error of syntax, or everything that is no single value where one belongs.
pub fn parse_toml(text: &str, path: &str) -> Result<(Vec<Given>, Vec<GivenRoute>), Problems> {
    let document = DeTable::parse(text).map_err(|error| Problems(vec![syntax(text, path, &error)]))?;
    let mut file = File { text, path, problems: Vec::new() };
    let (mut given, mut routes) = (Vec::new(), Vec::new());
    for (key, value) in file.in_order(document.get_ref()) {
        if key.get_ref() == "route" {
            routes = file.routes(value);
            continue;
        }
        let known = Setting::named(key.get_ref()).is_some();
        given.extend(file.entry(key, value, known, str::to_owned));
    }
    if file.problems.is_empty() { Ok((given, routes)) } else { Err(Problems(file.problems)) }
}

fn syntax(text: &str, path: &str, error: &toml::de::Error) -> Problem {
    // `message` is made of the parser's own words, never of the document's.
    let Some(span) = error.span() else {
        return Problem::new(path.escape_debug(), error.message());
    };
    let before = text.get(..span.start).unwrap_or(text);
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    let subject = format!("{} line {} column {column}", path.escape_debug(), line(text, &span));
    Problem::new(subject, error.message())
}

/// The line that `span` begins in, counted from 1.
fn line(text: &str, span: &Range<usize>) -> usize {
    text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1
}

type Key<'d> = Spanned<DeString<'d>>;
type Value<'d> = Spanned<DeValue<'d>>;

struct File<'d> {
    text: &'d str,
    path: &'d str,
    problems: Vec<Problem>,
}

impl<'d> File<'d> {
    /// The parser sorts by key; problems read better in the file's own order.
    fn in_order<'t>(&self, table: &'t DeTable<'d>) -> Vec<(&'t Key<'d>, &'t Value<'d>)> {
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        entries
    }

    fn origin(&self, span: &Range<usize>) -> Origin {
        Origin::File { path: self.path.into(), line: Some(line(self.text, span)) }
    }

    /// One key and its value. What is no single value is a problem, or, under an unknown name, left to the
    /// reader that reports unknown names.
    fn entry(
        &mut self,
        key: &Key<'d>,
        value: &Value<'d>,
        known: bool,
        called: impl FnOnce(&str) -> String,
    ) -> Option<Given> {
        let name = key.get_ref();
        let origin = self.origin(&key.span());
        let value = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(truth) => truth.to_string(),
            DeValue::Datetime(time) => time.to_string(),
            DeValue::Array(_) | DeValue::Table(_) if known => {
                let subject = origin.place(&called(name));
                self.problems.push(Problem::new(subject, "expected a single value, not a list or a table"));
                return None;
            }
            DeValue::Array(_) | DeValue::Table(_) => String::new(),
        };
        Some(Given { name: name.to_string(), value, origin })
    }

    fn routes(&mut self, value: &Value<'d>) -> Vec<GivenRoute> {
        let DeValue::Array(tables) = value.get_ref() else {
            self.no_route(&value.span());
            return Vec::new();
        };
        let mut routes = Vec::new();
        for (table, index) in tables.iter().zip(1..) {
            match table.get_ref() {
                DeValue::Table(entries) => routes.push(self.route(index, &table.span(), entries)),
                _ => self.no_route(&table.span()),
            }
        }
        routes
    }

    fn route(&mut self, index: usize, span: &Range<usize>, table: &DeTable<'d>) -> GivenRoute {
        let entries = self.in_order(table).into_iter().filter_map(|(key, value)| {
            let known = RouteKey::named(key.get_ref()).is_some();
            self.entry(key, value, known, |name| format!("{name} of route {index}"))
        });
        GivenRoute { entries: entries.collect(), index, origin: self.origin(span) }
    }

    fn no_route(&mut self, span: &Range<usize>) {
        let subject = self.origin(span).place("route");
        self.problems.push(Problem::new(subject, "expected a table, headed [[route]]"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(problems: &Problems) -> String {
        problems.to_string()
    }

    #[test]
    fn values_keep_their_text_and_line() {
        let text = "# outboxd\n\ndatabase_url = \"postgres://db\"\nbatch_rows = 1_000\nworkers=2.5\nlisten = true\n\
                    when = 2026-01-02\nother = [1]\ninterval = '30s'\n[section]\nx = 1\n";
        let (given, routes) = parse_toml(text, "o.toml").unwrap();
        let expected = [
            ("database_url", "postgres://db", 3),
            ("batch_rows", "1000", 4),
            ("workers", "2.5", 5),
            ("listen", "true", 6),
            ("when", "2026-01-02", 7),
            ("other", "", 8),
            ("interval", "30s", 9),
            ("section", "", 10),
        ];
        let found: Vec<_> = given
            .iter()
            .map(|given| match &given.origin {
                Origin::File { path, line: Some(line) } if path == "o.toml" => {
                    (given.name.as_str(), given.value.as_str(), *line)
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, expected);
        assert_eq!(routes, []);
    }

    #[test]
    fn routes_keep_their_order_and_lines() {
        let text = "[[route]]\nexchange = \"a\"\nevent_type = \"x\"\n\n[[route]]\nevent_type = \"y\"\n";
        let (given, routes) = parse_toml(text, "o.toml").unwrap();
        assert_eq!(given, []);
        let at = |line| Origin::File { path: "o.toml".into(), line: Some(line) };
        let entry = |name: &str, value: &str, line| Given {
            name: name.into(),
            value: value.into(),
            origin: at(line),
        };
        let expected = [
            GivenRoute {
                entries: vec![entry("exchange", "a", 2), entry("event_type", "x", 3)],
                index: 1,
                origin: at(1),
            },
            GivenRoute { entries: vec![entry("event_type", "y", 6)], index: 2, origin: at(5) },
        ];
        assert_eq!(routes, expected);
        let (_, inline) =
            parse_toml("route = [{event_type = \"x\"}, {event_type = \"y\"}]", "o.toml").unwrap();
        assert_eq!(inline.len(), 2);
        assert_eq!(parse_toml("route = []", "o.toml").unwrap().1, []);
    }

    #[test]
    fn only_single_values_are_values() {
        let text = "batch_rows = [1]\nroute = [1, {event_type = [], exchange = {}, other = []}]\n[interval]\nx = 1\n";
        let expected = "batch_rows in o.toml line 1: expected a single value, not a list or a table\n\
                        route in o.toml line 2: expected a table, headed [[route]]\n\
                        event_type of route 2 in o.toml line 2: expected a single value, not a list or a table\n\
                        exchange of route 2 in o.toml line 2: expected a single value, not a list or a table\n\
                        interval in o.toml line 3: expected a single value, not a list or a table";
        assert_eq!(shown(&parse_toml(text, "o.toml").unwrap_err()), expected);
        let expected = "route in o.toml line 1: expected a table, headed [[route]]";
        assert_eq!(shown(&parse_toml("[route]\nexchange = \"x\"", "o.toml").unwrap_err()), expected);
    }

    #[test]
    fn errors_of_syntax_say_where_and_hide_the_line() {
        let cases = [
            ("amqp_url = \"amqp://u:hunter2@host\n", 1),
            ("amqp_url = amqp://u:hunter2@host\n", 1),
            ("\n\namqp_url: 'amqp://u:hunter2@host'", 3),
            ("x = 1\namqp_url = 'a://u:hunter2@h' 'b'", 2),
            ("a = '1'\namqp_url = \"\\hunter2\"", 2),
            ("hunter2 = 1\nhunter2 = 2", 2),
            ("hunter2 = 1\nhunter2.x = 2", 2),
            ("é = 'hunter2", 1),
            ("[hunter2", 1),
            ("t = 2026-99-99hunter2", 1),
            ("hunter2", 1),
            ("\0", 1),
        ];
        for (text, line) in cases {
            let problems = parse_toml(text, "o.toml").unwrap_err();
            let message = shown(&problems);
            assert!(message.starts_with(&format!("o.toml line {line} column ")), "{message}");
            assert!(!message.contains("hunter2") && !message.contains('\n'), "{message}");
        }
        let nested = "a = ".to_owned() + &"[".repeat(100_000);
        assert!(parse_toml(&nested, "o.toml").is_err());
        assert!(parse_toml("\u{feff}batch_rows = 5\r\n", "o.toml").is_ok());
        assert!(parse_toml("", "o.toml").is_ok());
    }
}
