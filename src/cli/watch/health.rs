//! Whether the relay is alive, and whether it is ready. Pure: reads the numbers, knows no clock.

use std::time::{Duration, Instant};

use super::numbers::{Numbers, Standing};

/// How long the relay may be silent beside the opening of sessions: while one call to the database does not come back
/// another may follow, and each is given up after 20 s.
const SILENCE: Duration = Duration::from_secs(150);

/// How many sessions may be opened in a row without a sign of life.
const OPENINGS: u32 = 3;

/// The longest time without a sign of life of a relay that works, in whatever state both servers are.
pub(crate) fn silence_max(open_timeout: Duration) -> Duration {
    SILENCE + OPENINGS * open_timeout
}

/// Why the relay is not alive, if it is not: it gave no sign of life for longer than any server can keep it waiting.
pub(super) fn illness(numbers: &Numbers, silence_max: Duration, now: Instant) -> Option<String> {
    let silence = now.saturating_duration_since(numbers.alive);
    (silence > silence_max).then(|| {
        format!("no sign of life for {} s, {} s are the most", silence.as_secs(), silence_max.as_secs())
    })
}

/// Why the relay is not ready to publish, if it is not.
pub(super) fn unreadiness(numbers: &Numbers) -> Option<String> {
    let of = |server: &str, standing: &Standing| match standing {
        Standing { blocked: true, reason, .. } => {
            Some(format!("the {server} blocks publishers ({})", reason.as_deref().unwrap_or_default()))
        }
        Standing { up: Some(false), reason, .. } => Some(reason.clone().unwrap_or_default()),
        _ => None,
    };
    of("broker", &numbers.broker)
        .or_else(|| of("database", &numbers.database))
        .or_else(|| numbers.trouble.clone())
        .or_else(|| numbers.last_tick.is_none().then(|| "the first tick has not ended".into()))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_relay_is_alive_until_it_was_silent_for_longer_than_any_server_can_make_it() {
        let numbers = Numbers::new();
        let most = silence_max(Duration::from_secs(10));
        assert_eq!(most, Duration::from_secs(180));
        let after = |silence: Duration| illness(&numbers, most, numbers.alive + silence);
        assert_eq!(after(Duration::ZERO), None);
        assert_eq!(after(most), None);
        assert_eq!(
            after(most + Duration::from_secs(1)).as_deref(),
            Some("no sign of life for 181 s, 180 s are the most")
        );
    }

    #[test]
    fn readiness_needs_a_tick_and_both_servers() {
        let mut numbers = Numbers::new();
        assert_eq!(unreadiness(&numbers).as_deref(), Some("the first tick has not ended"));
        numbers.last_tick = Some(SystemTime::now());
        assert_eq!(unreadiness(&numbers), None);
        numbers.trouble = Some("the table is missing".into());
        assert_eq!(unreadiness(&numbers).as_deref(), Some("the table is missing"));
        numbers.database =
            Standing { up: Some(false), reason: Some("no database".into()), ..Standing::default() };
        assert_eq!(unreadiness(&numbers).as_deref(), Some("no database"));
        let reason = Some("low on memory".into());
        numbers.broker = Standing { up: Some(true), blocked: true, reason, ..Standing::default() };
        assert_eq!(unreadiness(&numbers).as_deref(), Some("the broker blocks publishers (low on memory)"));
    }
}
