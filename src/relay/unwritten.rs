//! Confirms that are in hand and not in the table: their claim was lost, or the table refuses them. Pure.

use crate::confirm::Receipt;
use crate::error::{Error, Kind, Server};

/// Most confirms that a relay claims further events beside. A table that refuses more has something against all of them,
/// and whatever is sent then is sent again by the relay that comes after this one.
const KEPT_MAX: usize = 1000;

/// They are facts, and kept until they are written or need not be. None of their events is sent again meanwhile.
#[derive(Debug, Default)]
pub(super) struct Unwritten {
    confirms: Vec<(i64, Receipt)>,
    refusal: Option<Error>,
}

impl Unwritten {
    pub(super) fn keep(&mut self, confirms: impl IntoIterator<Item = (i64, Receipt)>) {
        self.confirms.extend(confirms);
    }

    /// All of them, when it is known again which are unwritten still.
    pub(super) fn replace(&mut self, confirms: Vec<(i64, Receipt)>) {
        self.confirms = confirms;
    }

    /// Notes why the table refuses one of them.
    pub(super) fn refused(&mut self, error: &Error) {
        self.refusal = Some(error.clone());
    }

    pub(super) fn confirms(&self) -> &[(i64, Receipt)] {
        &self.confirms
    }

    pub(super) fn rows(&self) -> Vec<i64> {
        self.confirms.iter().map(|(row, _)| *row).collect()
    }

    pub(super) fn holds(&self, row: i64) -> bool {
        self.confirms.iter().any(|(it, _)| *it == row)
    }

    /// Hands one out, to be written with its claim.
    pub(super) fn take(&mut self, row: i64) -> Option<Receipt> {
        let at = self.confirms.iter().position(|(it, _)| *it == row)?;
        Some(self.confirms.swap_remove(at).1)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.confirms.is_empty()
    }

    /// Why nothing more is to be claimed beside them.
    ///
    /// # Errors
    /// They are too many.
    pub(super) fn are_few(&self) -> Result<(), Error> {
        if self.confirms.len() <= KEPT_MAX {
            return Ok(());
        }
        let what = format!("{} events are confirmed and cannot be marked", self.confirms.len());
        Err(match &self.refusal {
            Some(error) => {
                let with = Error::new(error.kind(), format!("{what}: {}", error.what()));
                error.remedy().map_or(with.clone(), |remedy| with.with_remedy(remedy))
            }
            None => {
                let what = format!("{what}: others hold their rows, or a trigger keeps them as they are");
                Error::new(Kind::Unavailable(Server::Database), what)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confirm::{Ledger, Verdict};

    fn receipts(count: usize) -> Vec<(i64, Receipt)> {
        let mut ledger = Ledger::default();
        (0..count).for_each(|_| ledger.sent(()));
        let receipt = |(_, verdict)| match verdict {
            Verdict::Confirmed(receipt) => receipt,
            other => panic!("{other:?}"),
        };
        (0..).zip(ledger.ack(count as u64, true).into_iter().map(receipt)).collect()
    }

    #[test]
    fn few_are_kept_beside_the_work_and_many_are_trouble_with_a_reason() {
        let mut unwritten = Unwritten::default();
        unwritten.keep(receipts(KEPT_MAX));
        assert_eq!(unwritten.are_few(), Ok(()));
        unwritten.keep(receipts(1));
        let unknown = unwritten.are_few().unwrap_err();
        assert!(
            unknown.to_string().starts_with("1001 events are confirmed and cannot be marked: others hold")
        );
        unwritten.refused(&Error::new(Kind::Configuration, "not this one").with_remedy("mend it"));
        let known = unwritten.are_few().unwrap_err();
        let expected = "1001 events are confirmed and cannot be marked: not this one: mend it";
        assert_eq!((known.kind(), known.to_string().as_str()), (Kind::Configuration, expected));
        assert!(unwritten.take(0).is_some() && unwritten.holds(7) && unwritten.take(-1).is_none());
        assert_eq!(unwritten.are_few(), Ok(()));
    }
}
