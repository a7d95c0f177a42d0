//! What several statements share: pieces of SQL in files of their own, put in where a statement names them.

use super::sql::part;

const PARTS: [(&str, &str); 6] = [
    ("{held_keys}", include_str!("../../sql/part/held_keys.sql")),
    ("{page}", include_str!("../../sql/part/page.sql")),
    ("{filter}", include_str!("../../sql/part/filter.sql")),
    ("{listed}", include_str!("../../sql/part/listed.sql")),
    ("{retryable}", include_str!("../../sql/part/retryable.sql")),
    ("{finished_before}", include_str!("../../sql/part/finished_before.sql")),
];

/// What stands for `{time COLUMN}`.
const TIME: &str = include_str!("../../sql/part/time.sql");

/// The statement with its parts in their places.
pub(super) fn with_parts(statement: &str) -> String {
    let parts = PARTS.iter().map(|(name, text)| (name, part(text)));
    let mut text = parts.fold(statement.to_string(), |text, (name, part)| text.replace(name, &part));
    let time = part(TIME);
    while let Some((before, rest)) = text.split_once("{time ") {
        let (column, after) = rest.split_once('}').unwrap_or((rest, ""));
        text = format!("{before}{}{after}", time.replace("{column}", column));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_may_stand_more_than_once_and_hold_times() {
        let text = with_parts("{time a.b} {listed} {time c} {filter} {filter}");
        assert!(
            text.starts_with("coalesce(") && text.contains("a.b::timestamptz") && text.contains("c::text")
        );
        assert_eq!(text.matches("strpos(").count(), 2);
        for start in
            ["{time", "{column", "{page", "{filter", "{listed", "{retryable", "{finished", "{held_keys", "--"]
        {
            assert!(!text.contains(start), "{start} in {text}");
        }
    }
}
