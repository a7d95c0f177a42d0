//! What a walk looks at next, by hand and by a simulation of relays on one table.

mod simulation;

use super::*;

/// No walk takes that long.
const BEAT: Duration = Duration::from_secs(3600);

/// A look that goes on behind a row.
fn walked(after: i64, barred: &[&str]) -> Option<Scope> {
    Some(Scope::Walk { after, fresh: false, barred: strings(barred) })
}

/// The first look of a walk, behind a row.
fn began(after: i64, barred: &[&str]) -> Option<Scope> {
    Some(Scope::Walk { after, fresh: true, barred: strings(barred) })
}

fn keys(keys: &[&str]) -> Option<Scope> {
    Some(Scope::Keys(strings(keys)))
}

fn strings(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|it| (*it).into()).collect()
}

fn next(key: &str) -> Vec<Rest> {
    vec![Rest::Next(key.into())]
}

fn held(key: &str) -> Vec<Rest> {
    vec![Rest::Held(key.into())]
}

/// What a look brought; `claimed` are the first row and the keys.
fn sight<'a>(claimed: Option<(i64, &[&'a str])>, more_after: Option<i64>) -> Sight<'a> {
    let claimed = claimed.map(|(first, keys)| (Some(first), keys.iter().copied().collect()));
    Sight { claimed, barred: &[], unasked: &[], more_after }
}

/// A walk with its tests' short words.
struct Tested {
    walk: Walk,
    /// Where it looked last.
    scope: Option<Scope>,
}

impl Tested {
    fn new() -> Self {
        Self { walk: Walk::new(), scope: None }
    }

    /// The next look while nothing is in flight.
    fn look(&mut self) -> Option<Scope> {
        self.look_at(BEAT, 100, false, &[])
    }

    /// The next look while claims are in flight, with these keys.
    fn look_beside(&mut self, busy: &[&str]) -> Option<Scope> {
        self.look_at(BEAT, 100, true, busy)
    }

    fn look_at(&mut self, beat: Duration, keys_max: usize, in_flight: bool, busy: &[&str]) -> Option<Scope> {
        self.scope = sorted(self.walk.next(beat, keys_max, in_flight, strings(busy)));
        self.scope.clone()
    }

    /// The last look brought this, and took as long.
    fn saw(&mut self, sight: Sight<'_>, took: Duration) {
        let scope = self.scope.take().expect("there was a look");
        self.walk.note(&scope, sight, took);
    }

    /// The last look brought events of these keys, the first of them in this row.
    fn took(&mut self, first: i64, keys: &[&str], more_after: Option<i64>) {
        self.saw(sight(Some((first, keys)), more_after), Duration::ZERO);
    }

    /// The same, with keys that were found to be barred or came not to be asked for.
    fn took_but(
        &mut self,
        first: i64,
        keys: &[&str],
        barred: &[&str],
        unasked: &[&str],
        more_after: Option<i64>,
    ) {
        let (barred, unasked) = (strings(barred), strings(unasked));
        let sight = Sight { barred: &barred, unasked: &unasked, ..sight(Some((first, keys)), more_after) };
        self.saw(sight, Duration::ZERO);
    }

    /// The last look brought nothing.
    fn found_nothing(&mut self) {
        self.saw(sight(None, None), Duration::ZERO);
    }

    fn landed(&mut self, rests: Vec<Rest>, withheld: bool) {
        self.walk.landed(rests, withheld);
    }

    fn is_over(&self) -> bool {
        self.walk.is_over()
    }

    fn is_at_its_end(&mut self) -> bool {
        self.look().is_none() && self.is_over()
    }
}

fn sorted(scope: Option<Scope>) -> Option<Scope> {
    scope.map(|it| match it {
        Scope::Walk { after, fresh, mut barred } => {
            barred.sort();
            Scope::Walk { after, fresh, barred }
        }
        keys => keys,
    })
}

#[test]
fn it_goes_on_behind_the_last_row_and_over_the_table_again_at_its_end() {
    let mut walk = Tested::new();
    assert_eq!(walk.look(), began(0, &[]));
    walk.took(5, &[], Some(7));
    assert_eq!(walk.look_beside(&[]), walked(7, &[]));
    walk.took(8, &[], Some(9));
    assert_eq!(walk.look_beside(&[]), walked(9, &[]));
    walk.took(10, &[], None);
    // What came in meanwhile must not wait for the next beat.
    assert_eq!(walk.look_beside(&[]), began(4, &[]));
    assert!(!walk.is_over());
    walk.found_nothing();
    assert!(walk.is_at_its_end());
}

#[test]
fn an_empty_look_behind_a_row_is_not_the_end() {
    let mut walk = Tested::new();
    walk.look();
    walk.took(5, &[], Some(7));
    assert_eq!(walk.look(), walked(7, &[]));
    walk.found_nothing();
    assert!(!walk.is_over());
    assert_eq!(walk.look(), began(4, &[]));
    walk.found_nothing();
    assert!(walk.is_at_its_end());
}

#[test]
fn keys_on_their_way_and_keys_in_trouble_are_passed_over() {
    let mut walk = Tested::new();
    walk.look();
    walk.took_but(1, &["a"], &["x"], &[], Some(7));
    assert_eq!(walk.look_beside(&["a"]), walked(7, &["a", "x"]));
    walk.took(8, &["b"], Some(9));
    walk.landed(held("a"), false);
    assert_eq!(walk.look_beside(&["b"]), walked(9, &["a", "b", "x"]));
    // Another walk asks again: whatever held them back may be over.
    walk.took(10, &[], None);
    assert_eq!(walk.look_beside(&["b"]), began(0, &["b"]));
}

#[test]
fn keys_that_went_through_are_continued_in_turn_with_the_walk() {
    let mut walk = Tested::new();
    walk.look();
    walk.took(1, &["a", "b"], Some(7));
    walk.landed([next("a"), next("b")].concat(), false);
    assert_eq!(walk.look(), keys(&["a", "b"]));
    // A look at keys moves no walk.
    walk.took(3, &["a", "b"], None);
    assert_eq!(walk.look_beside(&["a", "b"]), walked(7, &["a", "b"]));
    walk.took(8, &[], Some(9));
    walk.landed(next("a"), false);
    assert_eq!(walk.look_beside(&["b"]), keys(&["a"]));
    walk.landed(next("b"), false);
    assert_eq!(walk.look_beside(&[]), walked(9, &[]));
    walk.found_nothing();
    assert_eq!(walk.look_beside(&[]), keys(&["b"]));
}

#[test]
fn keys_are_continued_when_the_walk_is_at_its_end() {
    let mut walk = Tested::new();
    walk.look();
    walk.found_nothing();
    for _ in 0..3 {
        walk.landed(next("a"), false);
        assert!(!walk.is_over());
        assert_eq!(walk.look_beside(&[]), keys(&["a"]));
    }
    walk.landed(vec![Rest::Nothing], false);
    // New events of the key may have come in while it was passed over.
    assert!(!walk.is_over());
    assert_eq!(walk.look(), began(0, &[]));
    walk.found_nothing();
    assert!(walk.is_at_its_end());
}

#[test]
fn not_more_keys_are_asked_for_than_a_claim_has_rows() {
    let mut walk = Tested::new();
    walk.landed(["a", "b", "c"].map(next).concat(), false);
    assert_eq!(walk.look_at(BEAT, 2, false, &[]), keys(&["a", "b"]));
    // Those that the byte bound left out come again, behind the others.
    walk.took_but(1, &["a"], &[], &["b"], None);
    assert_eq!(walk.look_beside(&["a"]), began(0, &["a"]));
    assert_eq!(walk.look_beside(&["a"]), keys(&["c", "b"]));
}

#[test]
fn a_key_that_the_walk_has_taken_is_not_asked_for_again() {
    let mut walk = Tested::new();
    walk.walk.resumed_first = false;
    walk.landed([next("a"), next("b")].concat(), false);
    assert_eq!(walk.look(), began(0, &[]));
    walk.took(1, &["a"], Some(7));
    assert_eq!(walk.look_beside(&["a"]), keys(&["b"]));
}

#[test]
fn a_key_that_went_through_is_no_longer_barred() {
    let mut walk = Tested::new();
    walk.look();
    walk.took_but(1, &[], &["a"], &[], Some(7));
    walk.landed(next("a"), false);
    assert_eq!(walk.look(), keys(&["a"]));
    assert_eq!(walk.look(), walked(7, &[]));
}

#[test]
fn no_more_keys_are_barred_than_a_statement_takes() {
    let mut walk = Tested::new();
    walk.look();
    for n in 0..BARRED_MAX + 5 {
        walk.landed(held(&n.to_string()), false);
    }
    assert_eq!(walk.walk.barred.len(), BARRED_MAX);
}

#[test]
fn it_starts_over_at_every_beat_however_long_it_is() {
    let mut walk = Tested::new();
    walk.look();
    walk.took_but(5, &[], &["x"], &[], Some(7));
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(walk.look_at(Duration::from_millis(1), 100, true, &[]), began(0, &[]));
    // The beat counts from there.
    walk.took(3, &[], Some(5));
    assert_eq!(walk.look(), walked(5, &[]));
}

#[test]
fn what_was_passed_over_is_looked_for_once_all_has_landed() {
    for (rests, withheld) in [(vec![Rest::Nothing], false), (held("a"), false), (vec![], true)] {
        let mut walk = Tested::new();
        walk.look();
        walk.took(5, &["a"], None);
        assert_eq!(walk.look_beside(&["a"]), began(4, &["a"]));
        walk.found_nothing();
        assert_eq!(walk.look_beside(&["a"]), None);
        walk.landed(rests, withheld);
        assert_eq!(walk.look_beside(&["b"]), None, "another claim is on its way");
        assert!(!walk.is_over());
        assert_eq!(walk.look(), began(4, &[]));
        walk.found_nothing();
        assert!(walk.is_at_its_end());
    }
    let mut walk = Tested::new();
    walk.look();
    walk.took(5, &[], None);
    walk.look_beside(&[]);
    walk.found_nothing();
    walk.landed(vec![], false);
    assert!(walk.is_at_its_end(), "without keys nothing was passed over");
}

#[test]
fn the_last_walk_sees_the_rest_of_the_table_and_nothing_twice() {
    let mut walk = Tested::new();
    walk.look();
    walk.took(1, &["a"], Some(7));
    walk.landed(next("a"), false);
    walk.walk.be_the_last();
    walk.landed(next("b"), true);
    std::thread::sleep(Duration::from_millis(2));
    assert_eq!(walk.look_at(Duration::ZERO, 100, false, &[]), walked(7, &[]));
    walk.took(8, &[], Some(9));
    assert_eq!(walk.look(), walked(9, &[]));
    walk.took(10, &[], None);
    assert!(walk.is_at_its_end());
    // It was the last of its tick.
    walk.walk.begin();
    assert_eq!(walk.look(), began(0, &[]));
}

#[test]
fn a_walk_from_the_start_that_took_long_is_rare() {
    let mut walk = Tested::new();
    walk.look();
    walk.saw(sight(Some((700, &[])), Some(800)), Duration::from_secs(60));
    for _ in 0..3 {
        // The next ticks begin where this one found its first event.
        walk.walk.begin();
        assert_eq!(walk.look(), began(699, &[]));
        walk.found_nothing();
        assert!(walk.is_at_its_end());
    }
    walk.walk.begin();
    walk.look();
    walk.took(750, &[], None);
    walk.walk.begin();
    assert_eq!(walk.look(), began(749, &[]));

    let mut walk = Tested::new();
    walk.look();
    walk.saw(sight(Some((700, &[])), Some(800)), Duration::from_millis(19));
    walk.walk.begin();
    assert_eq!(walk.look(), began(0, &[]), "it was cheap");
}

/// Else a relay with short beats would never get past a long way of events that are held back.
#[test]
fn a_walk_that_has_found_nothing_yet_goes_on_in_the_next_tick() {
    let mut walk = Walk::new();
    walk.begin();
    let scope = walk.next(BEAT, 100, false, Vec::new());
    assert_eq!(scope, began(0, &[]));
    let nothing = Sight { claimed: None, barred: &[], unasked: &[], more_after: Some(70) };
    walk.note(&scope.unwrap(), nothing, Duration::ZERO);
    walk.begin();
    assert_eq!(walk.next(Duration::ZERO, 100, false, Vec::new()), walked(70, &[]));
    // Once it has come to the end, the next one starts over.
    let end = Sight { claimed: None, barred: &[], unasked: &[], more_after: None };
    walk.note(&walked(70, &[]).unwrap(), end, Duration::ZERO);
    walk.begin();
    assert_eq!(walk.next(BEAT, 100, false, Vec::new()), began(0, &[]));
}
