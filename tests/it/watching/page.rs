//! The status page of a relay at work: what it says about real trouble.

use super::{get, shown, wait_for_samples};
use crate::harness::wait_until;
use crate::world::{DEADLINE, World};

/// A text that would be a script, were it not escaped.
const EVIL: &str = "<script>alert('x')</script>";

#[test]
fn people_see_what_is_wrong_and_what_to_do() {
    let mut world = World::new();
    let queue = world.queue();
    let columns = "created_at, ordering_key, status, fail_count, last_error";
    let head = world.insert_with(
        EVIL,
        "{}",
        columns,
        &format!("now() - interval '1 hour', 'it''s <b>', 'DEAD', 3, '{}'", EVIL.replace('\'', "''")),
    );
    world.insert_with(&queue, "{}", "created_at, ordering_key", "now() - interval '1 hour', 'it''s <b>'");
    let (_relay, addr) = shown(&world, &["--max-failures", "1"]);
    // What is due by now is not among the first figures, which would call it late.
    wait_for_samples(addr, &[("outboxd_blocked_keys", 1.0)]);
    world.insert_many(&queue, 1234);
    let lost = world.insert(EVIL, "{}");
    let known = [
        ("outboxd_events_dead_total{reason=\"unroutable\"}", 1.0),
        ("outboxd_events_published_total", 1234.0),
    ];
    wait_for_samples(addr, &known);
    let page = wait_until("the page knows the blocked key", DEADLINE, || {
        let response = get(addr, "/");
        assert_eq!(response.status, 200, "{response:?}");
        assert!(response.head.contains("Content-Type: text/html; charset=utf-8"), "{response:?}");
        assert!(response.head.contains("Content-Security-Policy: default-src 'none'"), "{response:?}");
        response.body.contains("Blocked keys").then_some(response.body)
    });
    for text in [
        "<title>outboxd: needs a look</title>",
        "1 dead event waits for a person",
        "1 key is blocked by its first event",
        "it&#39;s &lt;b&gt;",
        "1 wait",
        &format!("outboxd retry --id {head}"),
        "outboxd skip --key &#39;it&#39;\\&#39;&#39;s &lt;b&gt;&#39; --head",
        &format!("event {lost}"),
        "NO_ROUTE",
        "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;",
        &format!("/{}", world.database.name),
        "1,234",
        ">usable<",
        "<svg",
    ] {
        assert!(page.contains(text), "{text:?} is not in {page}");
    }
    assert!(!page.contains("<script") && !page.contains("<b>'"), "{page}");
}

/// What it says to type does what it says.
#[test]
fn the_commands_on_the_page_work() {
    let mut world = World::new();
    let queue = world.queue();
    let columns = "created_at, ordering_key, status, fail_count, last_error";
    world.insert_with(&queue, "{}", columns, "now() - interval '1 hour', 'it''s $1', 'DEAD', 3, 'why'");
    let behind =
        world.insert_with(&queue, "{}", "created_at, ordering_key", "now() - interval '1 hour', 'it''s $1'");
    let (_relay, addr) = shown(&world, &[]);
    let page = wait_until("the page knows the blocked key", DEADLINE, || {
        let page = get(addr, "/").body;
        page.contains("Blocked keys").then_some(page)
    });
    let command = page.split("class=\"command\">").find(|it| it.starts_with("outboxd skip --key")).unwrap();
    let command = command.split("</code>").next().unwrap().replace("&#39;", "'").replace("&amp;", "&");
    let binary = crate::world::OUTBOXD;
    let script = command.replacen("outboxd", binary, 1);
    let environment = [("DATABASE_URL", world.database.url.as_str())];
    let done = crate::harness::Proc::run("/bin/sh", &["-c", &script], &environment, DEADLINE);
    assert_eq!(done.code, Some(0), "{script}: {done:?}");
    wait_until("what was behind it is published", DEADLINE, || {
        (world.row(behind).status == "PUBLISHED").then_some(())
    });
}
