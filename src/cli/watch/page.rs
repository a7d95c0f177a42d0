//! The status page: one HTML text that holds everything it shows, for people on a phone or at a desk. Read-only.
//!
//! Whatever comes from a row or a server goes through [`escape`].

mod plot;
mod verdict;
mod words;

use std::fmt::Write;
use std::time::{Duration, Instant, SystemTime};

use outboxd::config::Config;
use outboxd::outbox::{self, BlockedKey, DEPTH_MAX};
use outboxd::publisher;

use super::health;
use super::numbers::{Failure, Numbers, Standing};
use plot::Plot;
use verdict::Verdict;
use words::{ago, clock, count, escape, rate, shell, time};

const STYLE: &str = include_str!("page/style.css");

/// How often a browser asks again, in seconds: there is a sample as often.
const REFRESH_S: u64 = 15;

/// From which age on the table's figures are marked as old: two looks were missed.
const OLD: Duration = Duration::from_secs(90);

/// What does not change while the relay runs.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    table: String,
    database: String,
    broker: String,
    interval: Duration,
    /// How long the relay may be silent.
    pub(super) silence_max: Duration,
}

impl Facts {
    pub(super) fn of(config: &Config) -> Self {
        Self {
            table: config.database.table.to_string(),
            database: outbox::describe(&config.database),
            broker: publisher::describe_url(config.broker.url.expose()),
            interval: config.interval,
            silence_max: health::silence_max(config.database.open_timeout),
        }
    }
}

/// The page as things stand now.
pub(super) fn html(facts: &Facts, numbers: &Numbers) -> String {
    let illness = health::illness(numbers, facts.silence_max, Instant::now());
    let now = SystemTime::now();
    let verdicts = verdict::of(numbers, illness.as_ref(), now);
    let page = Page { facts, numbers, now };
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"refresh\" content=\"{REFRESH_S}\">\n<meta name=\"robots\" content=\"noindex\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         {header}\n{verdicts}\n{servers}\n{backlog}\n{plots}\n{keys}\n{failures}\n{footer}\n</main>\n</body>\n</html>\n",
        title = verdict::title(&verdicts),
        header = page.header(),
        verdicts = shown(&verdicts),
        servers = page.servers(),
        backlog = page.backlog(),
        plots = page.plots(),
        keys = page.blocked_keys(),
        failures = page.failures(),
        footer = page.footer(),
    )
}

struct Page<'a> {
    facts: &'a Facts,
    numbers: &'a Numbers,
    now: SystemTime,
}

impl Page<'_> {
    fn header(&self) -> String {
        format!(
            "<header><h1>outboxd</h1><span>{table} &rarr; {broker}</span><span>version {version}</span>\
             <span class=\"now\">{now} UTC, every {REFRESH_S} s</span></header>",
            table = escape(&self.facts.table),
            broker = escape(&self.facts.broker),
            version = env!("CARGO_PKG_VERSION"),
            now = clock(self.now, self.now),
        )
    }

    fn servers(&self) -> String {
        let Numbers { broker, database, last_tick, started, settled, .. } = self.numbers;
        let tick = last_tick.map_or("none yet".into(), |at| format!("{} ago", ago(at, self.now)));
        let list = definitions(&[
            ("last tick", tick, ""),
            ("beat", time(self.facts.interval), ""),
            ("running for", ago(*started, self.now), ""),
            ("published", count(settled.published), ""),
        ]);
        format!(
            "<div class=\"cards\">{}{}<section class=\"card\"><h3>Relay</h3>{list}</section>{}</div>",
            self.server("Broker", &self.facts.broker, broker),
            self.server("Database", &self.facts.database, database),
            self.outcomes(),
        )
    }

    fn server(&self, name: &str, place: &str, standing: &Standing) -> String {
        let (class, state) = match standing {
            Standing { blocked: true, .. } => ("bad", "blocked"),
            Standing { up: Some(true), .. } => ("good", "usable"),
            Standing { up: Some(false), .. } => ("bad", "not usable"),
            Standing { up: None, .. } => ("none", "not used yet"),
        };
        let since = standing.since.map_or(String::new(), |at| {
            format!("for {}, since {} UTC", ago(at, self.now), clock(at, self.now))
        });
        let again = match standing.reconnects {
            0 => String::new(),
            1 => "; back once".into(),
            many => format!("; back {} times", count(many)),
        };
        format!(
            "<section class=\"card\"><h3>{name}<span class=\"pill {class}\">{state}</span></h3>\
             <p><code>{}</code></p><p class=\"faint\">{since}{again}</p></section>",
            escape(place),
        )
    }

    fn outcomes(&self) -> String {
        let Numbers { failed, dead, settled, possible_duplicates, .. } = self.numbers;
        let rows = [
            ("refused, tried again", failed.sum(), ""),
            ("became dead", dead.sum(), "alarm"),
            ("expired", settled.expired, ""),
            ("sent, unconfirmed", possible_duplicates.sum(), ""),
        ];
        let rows = rows.map(|(name, number, class)| (name, count(number), class));
        format!("<section class=\"card\"><h3>Not published</h3>{}</section>", definitions(&rows))
    }

    fn backlog(&self) -> String {
        let Some(figures) = &self.numbers.figures else {
            return "<h2>Backlog</h2><p class=\"faint\">The table has not been looked at yet.</p>".into();
        };
        let age = figures.looked.elapsed();
        let old = if age > OLD { " <span class=\"pill warn\">old</span>" } else { "" };
        let known = |it: Option<u64>| it.map_or("not known".into(), count);
        let (states, counts) = (figures.backlog.as_ref(), figures.unfinished.as_ref());
        let oldest = match states.map(|it| it.oldest_due) {
            None => "not known".into(),
            Some(None) => "none".into(),
            Some(Some(age)) => time(age),
        };
        let first = definitions(&[
            ("WAITING", known(counts.map(|it| it.waiting)), ""),
            ("FAILED", known(counts.map(|it| it.failed)), ""),
            ("DEAD", known(counts.map(|it| it.dead)), "alarm"),
            ("blocked keys", known(figures.blocked.as_ref().map(|it| it.count)), "alarm"),
        ]);
        let second = definitions(&[
            ("due now", known(states.map(|it| it.due)), ""),
            ("the oldest due since", oldest, ""),
            ("held back by their key", known(states.map(|it| it.held_back)), ""),
        ]);
        let third = definitions(&[
            ("too young", known(states.map(|it| it.young)), ""),
            ("back off", known(states.map(|it| it.backing_off)), ""),
            ("scheduled", known(states.map(|it| it.scheduled)), ""),
        ]);
        format!(
            "<h2>Backlog <span>{} ago{old}</span></h2><div class=\"cards\"><section class=\"card\">{first}</section>\
             <section class=\"card\">{second}</section><section class=\"card\">{third}</section></div>",
            time(Duration::from_secs(age.as_secs())),
        )
    }

    fn plots(&self) -> String {
        let (history, now) = (&self.numbers.history, Instant::now());
        let rates = history.rates(now, |it| it.published);
        let ages = history.points(now, |it| it.age.map(|age| age.as_secs_f64()));
        #[allow(clippy::cast_precision_loss, reason = "a plot is not that precise")]
        let due = history.points(now, |it| it.due.map(|due| due as f64));
        let seconds = |value: f64| time(Duration::try_from_secs_f64(value).unwrap_or_default());
        let plots = [
            Plot {
                title: "Published",
                points: &rates,
                form: &|value| format!("{} / s", rate(value)),
                class: "rate",
            },
            Plot { title: "Age of the oldest due event", points: &ages, form: &seconds, class: "age" },
            Plot { title: "Due or held back", points: &due, form: &rate, class: "due" },
        ];
        let plots: String = plots.iter().map(Plot::html).collect();
        format!("<h2>Over time</h2><div class=\"plots\">{plots}</div>")
    }

    fn blocked_keys(&self) -> String {
        let blocked = self.numbers.figures.as_ref().and_then(|it| it.blocked.as_ref());
        let Some(blocked) = blocked.filter(|it| !it.heads.is_empty()) else { return String::new() };
        let rows: String = blocked.heads.iter().map(|head| self.blocked_key(head)).collect();
        let left = blocked.count.saturating_sub(u64::try_from(blocked.heads.len()).unwrap_or(u64::MAX));
        let more = match (left, blocked.more) {
            (0, false) => String::new(),
            (_, true) => "<p class=\"more\">There are more than were looked at.</p>".into(),
            (left, false) => format!("<p class=\"more\">And {} more.</p>", count(left)),
        };
        format!("<h2>Blocked keys</h2><ul class=\"rows\">{rows}</ul>{more}")
    }

    fn blocked_key(&self, head: &BlockedKey) -> String {
        let age = head.age.map_or(String::new(), |age| format!(" for {}", time(age)));
        let behind = match head.depth {
            depth if depth > DEPTH_MAX => format!("more than {} wait", count(DEPTH_MAX)),
            depth => format!("{} wait", count(depth)),
        };
        let class = if head.status == "DEAD" { "bad" } else { "warn" };
        let due = head.due_at.as_ref().map_or(String::new(), |at| format!("; due at {}", escape(at)));
        let mut html = format!(
            "<li><div class=\"row\"><code><b>{}</b></code><span class=\"pill {class}\">{}{age}</span>\
             <span class=\"when\">{behind}</span></div><p class=\"faint\">event {} (<code>{}</code>){due}: {}</p>",
            escape(&head.key),
            escape(&head.status),
            head.id,
            escape(&head.event_type),
            escape(head.last_error.as_deref().unwrap_or("scheduled")),
        );
        html += "<div class=\"commands\">";
        if head.status != "WAITING" {
            html += &command(&format!("outboxd retry --id {}", head.id));
        }
        html += &command(&format!("outboxd skip --key {} --head", shell(&head.key)));
        html + "</div></li>"
    }

    fn failures(&self) -> String {
        if self.numbers.failures.is_empty() {
            return "<h2>Last failures</h2><p class=\"faint\">None since the start.</p>".into();
        }
        let rows: String = self.numbers.failures.iter().map(|it| self.failure(it)).collect();
        format!(
            "<h2>Last failures</h2><ul class=\"rows\">{rows}</ul>{}",
            command("outboxd list --status failed,dead")
        )
    }

    fn failure(&self, failure: &Failure) -> String {
        let Failure { at, id, count: number, event_type, became, reason } = failure;
        let which = match number {
            1 => format!("event {id}"),
            number => format!("{} events, last {id}", count(*number)),
        };
        let class = if *became == "DEAD" { "bad" } else { "warn" };
        format!(
            "<li><div class=\"row\"><span class=\"pill {class}\">{became}</span><span>{which}</span>\
             <code>{}</code><span class=\"when\">{} ago, {}</span></div><p class=\"faint\">{}</p></li>",
            escape(event_type),
            ago(*at, self.now),
            clock(*at, self.now),
            escape(reason),
        )
    }

    fn footer(&self) -> String {
        "<footer><p>More than is shown here: <code>outboxd status</code>. One event, and why it is not sent: \
         <code>outboxd show ID</code>. For machines: <code>/metrics</code>, <code>/healthz</code>, \
         <code>/readyz</code>.</p></footer>"
            .into()
    }
}

fn shown(verdicts: &[Verdict]) -> String {
    let mut html = String::new();
    for it in verdicts {
        let _ = write!(html, "<section class=\"verdict {}\"><b>{}</b>", it.level.class(), escape(&it.text));
        if let Some(why) = &it.why {
            let _ = write!(html, "<p>{}</p>", escape(why));
        }
        html += "<div class=\"commands\">";
        it.commands.iter().for_each(|line| html += &command(line));
        html += "</div></section>";
    }
    html
}

fn command(line: &str) -> String {
    format!("<code class=\"command\">{}</code>", escape(line))
}

/// Names and figures; an alarming one is one only when it is not zero.
fn definitions(rows: &[(&str, String, &str)]) -> String {
    let mut html = String::from("<dl>");
    for (name, value, class) in rows {
        let class = if value == "0" { "zero" } else { class };
        let _ = write!(html, "<dt>{name}</dt><dd class=\"{class}\">{}</dd>", escape(value));
    }
    html + "</dl>"
}

#[cfg(test)]
mod tests;
