//! The ledger of one channel in confirm mode: exactly one verdict for each message published on it.
//!
//! Pure; knows neither the broker's client nor the table. What RabbitMQ promises, and what the ledger is built
//! on ("Publisher Confirms" in its manual): tags count up from 1 per channel; one confirm may settle a tag or, as
//! `multiple`, all tags up to it; confirms come in any order; a message that is returned as unroutable is
//! acknowledged afterwards all the same, so an ack alone proves nothing about routing.

use std::collections::BTreeMap;

/// Proof that the broker took a message: made here, from an ack that no return came before, and nowhere else.
///
/// Whatever marks an event as published asks for one, so no other path can.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt(());

/// What the broker said of one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Acknowledged, and not returned.
    Confirmed(Receipt),
    /// Acknowledged after it was returned, with the broker's reason.
    Returned(String),
    /// Negatively acknowledged: the broker did not take it.
    Nacked,
}

/// The messages of one channel that are still without a verdict, in the order in which they were published.
#[derive(Debug)]
pub struct Ledger<T> {
    last_tag: u64,
    outstanding: BTreeMap<u64, Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    item: T,
    returned: Option<String>,
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        Self { last_tag: 0, outstanding: BTreeMap::new() }
    }
}

impl<T> Ledger<T> {
    /// Notes that `item` is the next message published on the channel.
    pub fn sent(&mut self, item: T) {
        self.last_tag += 1;
        self.outstanding.insert(self.last_tag, Entry { item, returned: None });
    }

    /// Notes a return. A return carries no tag; `is_it` recognises the message by its id.
    ///
    /// Should two outstanding messages carry one id, both count as returned: neither may pass as published.
    pub fn returned(&mut self, is_it: impl Fn(&T) -> bool, reason: &str) {
        for entry in self.outstanding.values_mut().filter(|entry| is_it(&entry.item)) {
            entry.returned = Some(reason.into());
        }
    }

    /// The verdicts that an ack of `tag` brings. Tags without an outstanding message are passed over.
    pub fn ack(&mut self, tag: u64, multiple: bool) -> Vec<(T, Verdict)> {
        self.take(tag, multiple)
            .into_iter()
            .map(|entry| {
                let verdict = match entry.returned {
                    None => Verdict::Confirmed(Receipt(())),
                    Some(reason) => Verdict::Returned(reason),
                };
                (entry.item, verdict)
            })
            .collect()
    }

    /// The verdicts that a nack of `tag` brings. Tags without an outstanding message are passed over.
    pub fn nack(&mut self, tag: u64, multiple: bool) -> Vec<(T, Verdict)> {
        self.take(tag, multiple).into_iter().map(|entry| (entry.item, Verdict::Nacked)).collect()
    }

    /// Everything without a verdict, when none can come any more: the channel or its connection ended.
    pub fn abandon(&mut self) -> Vec<T> {
        std::mem::take(&mut self.outstanding).into_values().map(|entry| entry.item).collect()
    }

    /// How many messages are without a verdict.
    pub fn len(&self) -> usize {
        self.outstanding.len()
    }

    /// Whether every message has its verdict.
    pub fn is_empty(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// Taking an entry out is what makes its first verdict its only one.
    fn take(&mut self, tag: u64, multiple: bool) -> Vec<Entry<T>> {
        if !multiple {
            return self.outstanding.remove(&tag).into_iter().collect();
        }
        // `multiple` with tag 0 means "everything so far" (AMQP 0-9-1, basic.ack).
        let above = match tag {
            0 => BTreeMap::new(),
            _ => self.outstanding.split_off(&tag.saturating_add(1)),
        };
        std::mem::replace(&mut self.outstanding, above).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Step {
        Ack(u64),
        AckUpTo(u64),
        Nack(u64),
        NackUpTo(u64),
        Returned(u32),
    }
    use Step::*;

    /// Publishes items 1 to `published`, applies the steps, and writes each verdict as `3+` (confirmed), `3-`
    /// (nacked) or `3r` (returned), in the order in which they came.
    fn verdicts(published: u32, steps: &[Step]) -> (String, usize) {
        let mut ledger = Ledger::default();
        (1..=published).for_each(|item| ledger.sent(item));
        let mut seen = Vec::new();
        for step in steps {
            let batch = match *step {
                Ack(tag) => ledger.ack(tag, false),
                AckUpTo(tag) => ledger.ack(tag, true),
                Nack(tag) => ledger.nack(tag, false),
                NackUpTo(tag) => ledger.nack(tag, true),
                Returned(item) => {
                    ledger.returned(|it| *it == item, "NO_ROUTE");
                    Vec::new()
                }
            };
            seen.extend(batch.into_iter().map(|(item, verdict)| match verdict {
                Verdict::Confirmed(_) => format!("{item}+"),
                Verdict::Nacked => format!("{item}-"),
                Verdict::Returned(reason) => {
                    assert_eq!(reason, "NO_ROUTE");
                    format!("{item}r")
                }
            }));
        }
        (seen.join(" "), ledger.len())
    }

    #[test]
    fn each_message_gets_exactly_one_verdict() {
        let cases: &[(&str, u32, &[Step], &str, usize)] = &[
            ("in order", 3, &[Ack(1), Ack(2), Ack(3)], "1+ 2+ 3+", 0),
            ("out of order", 3, &[Ack(3), Ack(1), Ack(2)], "3+ 1+ 2+", 0),
            ("multiple", 5, &[AckUpTo(3)], "1+ 2+ 3+", 2),
            ("multiple after single", 3, &[Ack(2), AckUpTo(3)], "2+ 1+ 3+", 0),
            ("a nack survives a later multiple ack", 5, &[Nack(3), AckUpTo(5)], "3- 1+ 2+ 4+ 5+", 0),
            ("an ack survives a later multiple nack", 3, &[Ack(1), NackUpTo(3)], "1+ 2- 3-", 0),
            ("the first verdict of a tag is final", 2, &[Nack(1), Ack(1), Ack(2), Nack(2)], "1- 2+", 0),
            ("an unknown tag changes nothing", 2, &[Ack(7), Nack(9), Ack(1)], "1+", 1),
            ("tag 0 alone changes nothing", 2, &[Ack(0)], "", 2),
            ("multiple with tag 0 is everything so far", 2, &[AckUpTo(0)], "1+ 2+", 0),
            ("multiple beyond the last tag", 2, &[AckUpTo(99)], "1+ 2+", 0),
            ("multiple of the largest tag", 2, &[AckUpTo(u64::MAX)], "1+ 2+", 0),
            ("an ack after a return is no confirm", 3, &[Returned(2), AckUpTo(3)], "1+ 2r 3+", 0),
            ("a nack after a return stays a nack", 1, &[Returned(1), Nack(1)], "1-", 0),
            ("a return of something else changes nothing", 1, &[Returned(9), Ack(1)], "1+", 0),
            ("a return after the ack comes too late to matter", 1, &[Ack(1), Returned(1)], "1+", 0),
        ];
        for (name, published, steps, expected, left) in cases {
            assert_eq!(verdicts(*published, steps), ((*expected).to_string(), *left), "{name}");
        }
    }

    #[test]
    fn two_messages_with_one_id_are_both_returned() {
        let mut ledger = Ledger::default();
        ledger.sent("twin");
        ledger.sent("twin");
        ledger.returned(|it| *it == "twin", "NO_ROUTE");
        assert!(ledger.ack(2, true).iter().all(|(_, verdict)| matches!(verdict, Verdict::Returned(_))));
    }

    #[test]
    fn abandoning_yields_what_has_no_verdict_and_later_confirms_change_nothing() {
        let mut ledger = Ledger::default();
        (1..=4).for_each(|item| ledger.sent(item));
        ledger.ack(2, false);
        assert_eq!(ledger.abandon(), [1, 3, 4]);
        assert!(ledger.is_empty());
        assert!(ledger.ack(4, true).is_empty());
    }

    #[test]
    fn tags_go_on_counting_over_the_life_of_a_channel() {
        let mut ledger = Ledger::default();
        ledger.sent('a');
        ledger.ack(1, false);
        ledger.sent('b');
        assert!(ledger.ack(1, false).is_empty());
        assert_eq!(ledger.ack(2, false).len(), 1);
    }
}
