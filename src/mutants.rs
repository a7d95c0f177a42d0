//! Known defects, for proving that the chaos run would find them: each is one place in the relay that asks here whether
//! it is to be wrong. Built only with the feature `mutants`, which a release build refuses.

use std::sync::LazyLock;

use crate::event::Outcome;

/// Whether the relay is to have this defect: `MUTANT` in the environment names it.
pub(crate) fn is(name: &str) -> bool {
    static CHOSEN: LazyLock<Option<String>> = LazyLock::new(|| std::env::var("MUTANT").ok());
    CHOSEN.as_deref() == Some(name)
}

/// What an outage leaves unknown, as a refusal.
pub(crate) fn counted(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Unknown(reason) if is("outage-counted") => Outcome::Refused(reason),
        other => other,
    }
}
