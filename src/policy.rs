//! From an outcome to what is written into the row. The only place that decides it.
//!
//! Pure: no clock, no chance, no table. Back-offs are upper ends; the settle statement picks a moment between
//! half of them and all of them, so that events refused together do not come back together.

use std::time::Duration;

use crate::config::{OnDead, Retry};
use crate::confirm::Receipt;
use crate::event::{Event, Outcome};

/// After this many attempts in a row without a confirm, an event goes alone: one of those that were in flight
/// together may be what ended the connection, and alone it is found.
const ALONE_AFTER: u32 = 1;

/// After this many attempts in a row without a confirm, an event backs off.
const BACKOFF_AFTER: u32 = 3;

/// How `last_error` of an unconfirmed event begins; what follows is the number of such attempts in a row.
pub const UNCONFIRMED: &str = "unconfirmed x";

/// How `last_error` of an event begins that an operator made due again.
pub const RETRIED: &str = "retried by hand";

/// The same where it was sent before: its next message may be a second one.
pub const RESENT: &str = "re-sent by hand";

/// What a row becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// PUBLISHED. The receipt is the broker's confirm.
    Published(Receipt),
    /// FAILED with this count, and due again within the back-off.
    Failed {
        /// The new `fail_count`.
        fail_count: u32,
        /// The longest time until the next attempt.
        backoff: Duration,
        /// For `last_error`.
        reason: String,
    },
    /// DEAD with this count: waits for an operator.
    Dead {
        /// The new `fail_count`.
        fail_count: u32,
        /// For `last_error`.
        reason: String,
    },
    /// EXPIRED.
    Expired {
        /// For `last_error`.
        reason: String,
    },
    /// Status and counter stay; the row says that it may have been delivered.
    Unconfirmed {
        /// The longest time until the next attempt; none means at once.
        backoff: Option<Duration>,
        /// For `last_error`.
        reason: String,
    },
    /// The row stays as it was.
    Released,
}

/// What an outcome makes of its event.
pub fn settlement(event: &Event, outcome: Outcome, retry: &Retry) -> Settlement {
    #[cfg(feature = "mutants")]
    let outcome = crate::mutants::counted(outcome);
    match outcome {
        Outcome::Confirmed(receipt) => Settlement::Published(receipt),
        Outcome::Refused(reason) => refused(event.fail_count, reason, retry),
        Outcome::Busy(reason) => {
            // Back-pressure alone never ends an event: its count stops below the limit.
            let limit = retry.max_failures.saturating_sub(1);
            let fail_count = event.fail_count.saturating_add(1).min(limit).max(event.fail_count);
            Settlement::Failed { fail_count, backoff: backoff(fail_count, retry), reason }
        }
        Outcome::Invalid(reason) => Settlement::Dead { fail_count: event.fail_count, reason },
        Outcome::Unknown(reason) => {
            let in_a_row = unconfirmed_in_a_row(event.last_error.as_deref()).saturating_add(1);
            Settlement::Unconfirmed {
                backoff: (in_a_row >= BACKOFF_AFTER).then(|| backoff(in_a_row - BACKOFF_AFTER + 1, retry)),
                reason: format!(
                    "{UNCONFIRMED}{in_a_row}: {reason}; it may have been delivered and is sent again"
                ),
            }
        }
        Outcome::Unsent => Settlement::Released,
    }
}

/// What is noted of an event that is confirmed, and which the table does not let be PUBLISHED. Due at once, as it would be
/// without the note: a back-off would hold its key back.
pub fn unwritten(why: &str) -> Settlement {
    let reason = format!("{UNCONFIRMED}1: the broker has it, but the table does not take that: {why}");
    Settlement::Unconfirmed { backoff: None, reason }
}

/// What ends an event that is not sent any more: its time is over, or its failures are at a limit that was
/// lowered since.
pub fn end(event: &Event, retry: &Retry) -> Option<Settlement> {
    if event.expires_in == Some(Duration::ZERO) {
        return Some(Settlement::Expired { reason: "expired_at passed before it was sent".into() });
    }
    if event.over_max_age {
        return Some(Settlement::Expired { reason: "max_age passed before it was sent".into() });
    }
    if event.failed && event.fail_count >= retry.max_failures {
        let reason = format!("refused {} times, max_failures is {}", event.fail_count, retry.max_failures);
        // The reason of its last refusal says more than ours.
        let reason = event.last_error.clone().unwrap_or(reason);
        return Some(Settlement::Dead { fail_count: event.fail_count, reason });
    }
    None
}

/// Whether the next event of the same key may be sent after this one. What was only sent, or is to be sent again, holds
/// its followers back.
pub fn frees_key(settlement: &Settlement) -> bool {
    matches!(settlement, Settlement::Published(_) | Settlement::Expired { .. })
}

/// Whether the next event of the same key may be sent once the settlement is committed.
pub fn frees_key_when_written(settlement: &Settlement, on_dead: OnDead) -> bool {
    // Not before, because a DEAD event whose settlement is lost is tried again.
    frees_key(settlement) || (on_dead == OnDead::Skip && matches!(settlement, Settlement::Dead { .. }))
}

/// Whether an event is to be sent with no other message in flight on its channel.
pub fn goes_alone(event: &Event) -> bool {
    unconfirmed_in_a_row(event.last_error.as_deref()) >= ALONE_AFTER
}

/// Whether an event may be what ended the connection that it was last sent on. A confirm that just did not come is
/// its own destination's business.
pub fn is_risky(event: &Event) -> bool {
    goes_alone(event) && !event.last_error.as_deref().is_some_and(|text| text.contains(": no confirm "))
}

/// Whether the next message of an event may be a second one, by its `last_error`.
pub fn may_be_duplicate(last_error: Option<&str>) -> bool {
    unconfirmed_in_a_row(last_error) > 0 || was_sent_again(last_error)
}

/// Whether an operator has an event sent that was sent before, by its `last_error`.
pub fn was_sent_again(last_error: Option<&str>) -> bool {
    last_error.is_some_and(|text| text.starts_with(RESENT))
}

/// How many attempts in a row ended without a confirm, by the event's `last_error`.
pub fn unconfirmed_in_a_row(last_error: Option<&str>) -> u32 {
    last_error
        .and_then(|text| text.strip_prefix(UNCONFIRMED))
        .and_then(|rest| rest.split(':').next())
        .and_then(|count| count.parse().ok())
        .unwrap_or(0)
}

fn refused(fail_count: u32, reason: String, retry: &Retry) -> Settlement {
    let fail_count = fail_count.saturating_add(1);
    if fail_count >= retry.max_failures {
        Settlement::Dead { fail_count, reason }
    } else {
        Settlement::Failed { fail_count, backoff: backoff(fail_count, retry), reason }
    }
}

/// `backoff_base` after the first failure, doubling with each further one up to `backoff_max`.
fn backoff(failures: u32, retry: &Retry) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    retry.backoff_base.saturating_mul(1 << doublings).min(retry.backoff_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confirm::{Ledger, Verdict};

    const RETRY: Retry = Retry {
        max_failures: 3,
        backoff_base: Duration::from_secs(30),
        backoff_max: Duration::from_secs(100),
    };

    fn event(fail_count: u32, last_error: Option<&str>) -> Event {
        Event {
            failed: fail_count > 0,
            fail_count,
            last_error: last_error.map(Into::into),
            ..Event::new(1, "01", "t")
        }
    }

    fn failed(fail_count: u32, backoff_s: u64) -> Settlement {
        let backoff = Duration::from_secs(backoff_s);
        Settlement::Failed { fail_count, backoff, reason: "why".into() }
    }

    fn dead(fail_count: u32) -> Settlement {
        Settlement::Dead { fail_count, reason: "why".into() }
    }

    #[test]
    fn each_outcome_has_its_settlement() {
        let why = || "why".to_string();
        let cases = [
            ("first refusal", 0, Outcome::Refused(why()), failed(1, 30)),
            ("second refusal doubles", 1, Outcome::Refused(why()), failed(2, 60)),
            ("the last refusal kills", 2, Outcome::Refused(why()), dead(3)),
            ("beyond the limit", 7, Outcome::Refused(why()), dead(8)),
            ("first nack", 0, Outcome::Busy(why()), failed(1, 30)),
            ("a nack stops below the limit", 2, Outcome::Busy(why()), failed(2, 60)),
            ("a nack never lowers the count", 5, Outcome::Busy(why()), failed(5, 100)),
            ("invalid dies at once, uncounted", 0, Outcome::Invalid(why()), dead(0)),
            ("unsent", 2, Outcome::Unsent, Settlement::Released),
        ];
        for (name, fail_count, outcome, expected) in cases {
            assert_eq!(settlement(&event(fail_count, None), outcome, &RETRY), expected, "{name}");
        }
    }

    #[test]
    fn only_a_receipt_publishes() {
        let mut ledger = Ledger::default();
        ledger.sent(());
        let (_, verdict) = ledger.ack(1, false).remove(0);
        let Verdict::Confirmed(receipt) = verdict else { panic!("{verdict:?}") };
        let published = settlement(&event(2, None), Outcome::Confirmed(receipt.clone()), &RETRY);
        assert_eq!(published, Settlement::Published(receipt));
    }

    #[test]
    fn a_limit_of_one_leaves_no_second_attempt_to_refusals_but_to_nacks() {
        let retry = Retry { max_failures: 1, ..RETRY };
        assert_eq!(settlement(&event(0, None), Outcome::Refused("why".into()), &retry), dead(1));
        assert_eq!(settlement(&event(0, None), Outcome::Busy("why".into()), &retry), failed(0, 30));
    }

    #[test]
    fn attempts_without_a_confirm_are_counted_in_a_row_and_back_off_from_the_third() {
        let mut event = event(0, None);
        assert!(!goes_alone(&event));
        for (in_a_row, backoff_s) in [(1, None), (2, None), (3, Some(30)), (4, Some(60)), (5, Some(100))] {
            let settled = settlement(&event, Outcome::Unknown("connection lost".into()), &RETRY);
            let Settlement::Unconfirmed { backoff, reason } = settled else { panic!("{settled:?}") };
            assert_eq!(unconfirmed_in_a_row(Some(&reason)), in_a_row);
            assert_eq!(backoff, backoff_s.map(Duration::from_secs), "{in_a_row}");
            event.last_error = Some(reason);
            assert!(goes_alone(&event), "{in_a_row}");
        }
        for other in [None, Some(""), Some("NO_ROUTE"), Some("unconfirmed xx: y")] {
            assert_eq!(unconfirmed_in_a_row(other), 0, "{other:?}");
        }
    }

    #[test]
    fn what_is_over_is_ended_unsent() {
        let sendable = event(2, Some("NO_ROUTE"));
        assert_eq!(end(&sendable, &RETRY), None);
        let alive = Event { expires_in: Some(Duration::from_millis(1)), ..sendable.clone() };
        assert_eq!(end(&alive, &RETRY), None);
        let expired = Event { expires_in: Some(Duration::ZERO), ..sendable.clone() };
        assert!(matches!(end(&expired, &RETRY), Some(Settlement::Expired { .. })));
        let old = Event { over_max_age: true, ..sendable.clone() };
        assert!(matches!(end(&old, &RETRY), Some(Settlement::Expired { .. })));
        let exhausted = Event { fail_count: 3, ..sendable.clone() };
        assert_eq!(
            end(&exhausted, &RETRY),
            Some(Settlement::Dead { fail_count: 3, reason: "NO_ROUTE".into() })
        );
        let waiting = Event { fail_count: 3, failed: false, ..sendable };
        assert_eq!(end(&waiting, &RETRY), None);
    }

    #[test]
    fn followers_go_only_behind_what_is_over() {
        let mut ledger = Ledger::default();
        ledger.sent(());
        let (_, verdict) = ledger.ack(1, false).remove(0);
        let Verdict::Confirmed(receipt) = verdict else { panic!("{verdict:?}") };
        let unconfirmed = Settlement::Unconfirmed { backoff: None, reason: "why".into() };
        let cases = [
            // At once; and once it is written, where a dead event blocks and where it is passed over.
            (Settlement::Published(receipt), [true, true, true]),
            (Settlement::Expired { reason: "why".into() }, [true, true, true]),
            (dead(3), [false, false, true]),
            (failed(1, 30), [false, false, false]),
            (unconfirmed, [false, false, false]),
            (Settlement::Released, [false, false, false]),
        ];
        for (settlement, expected) in cases {
            let found = [
                frees_key(&settlement),
                frees_key_when_written(&settlement, OnDead::Block),
                frees_key_when_written(&settlement, OnDead::Skip),
            ];
            assert_eq!(found, expected, "{settlement:?}");
        }
    }

    #[test]
    fn backoff_never_overflows() {
        let retry = Retry { max_failures: 1000, ..RETRY };
        assert_eq!(backoff(u32::MAX, &retry), retry.backoff_max);
        assert_eq!(backoff(0, &retry), retry.backoff_base);
    }

    #[test]
    fn what_is_sent_again_by_hand_may_be_a_duplicate_and_does_not_go_alone() {
        for (last_error, duplicate, alone) in [
            (None, false, false),
            (Some("312 NO_ROUTE"), false, false),
            (Some("retried by hand; was DEAD: 312 NO_ROUTE"), false, false),
            (Some("re-sent by hand; was PUBLISHED"), true, false),
            (Some("re-sent by hand; was DEAD: unconfirmed x2: connection lost"), true, false),
            (Some("unconfirmed x1: connection lost"), true, true),
        ] {
            assert_eq!(may_be_duplicate(last_error), duplicate, "{last_error:?}");
            assert_eq!(goes_alone(&event(0, last_error)), alone, "{last_error:?}");
        }
    }
}
