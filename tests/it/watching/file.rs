//! The file that `once` leaves for the textfile collector, and `run` writes now and then.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fs, thread};

use super::{promtool, samples};
use crate::harness::{free_port, unique, wait_until};
use crate::world::{DEADLINE, World};

/// A folder that is gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = env::temp_dir().join(unique("outboxd-textfile"));
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("outboxd.prom")
    }

    /// The names of all that is in it.
    fn entries(&self) -> Vec<String> {
        fs::read_dir(&self.0).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn read(path: &Path) -> BTreeMap<String, f64> {
    let text = fs::read_to_string(path).unwrap();
    assert_eq!(promtool(&["check", "metrics"], &text), "");
    samples(&text)
}

#[test]
fn a_run_leaves_what_it_did_and_what_is_left() {
    let mut world = World::new();
    let (queue, folder) = (world.queue(), Folder::new());
    world.insert_many(&queue, 3);
    world.insert("nobody.asks", "{}");
    world.insert_with("x", "{}", "status, fail_count", "'DEAD', 3");
    let path = folder.file();
    world.once(&["--metrics-file", path.to_str().unwrap()], 75);
    let found = read(&path);
    for (name, expected) in [
        ("outboxd_last_run_success", 1.0),
        ("outboxd_last_run_exit_code", 75.0),
        ("outboxd_last_run_events{outcome=\"claimed\"}", 4.0),
        ("outboxd_last_run_events{outcome=\"published\"}", 3.0),
        ("outboxd_last_run_events{outcome=\"failed\"}", 1.0),
        ("outboxd_last_run_events{outcome=\"dead\"}", 0.0),
        ("outboxd_events{status=\"dead\"}", 1.0),
        ("outboxd_events{status=\"failed\"}", 1.0),
        ("outboxd_backlog_events{state=\"backing_off\"}", 1.0),
    ] {
        assert_eq!(found.get(name), Some(&expected), "{name}: {found:?}");
    }
    assert!(!found.keys().any(|name| name.contains("_total")), "a run's counters start over: {found:?}");
    let ended = found["outboxd_last_run_timestamp_seconds"];
    assert_eq!(found["outboxd_last_success_timestamp_seconds"], ended);
    assert!(found["outboxd_last_run_duration_seconds"] > 0.0);
    assert_eq!(folder.entries(), ["outboxd.prom"]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
}

#[test]
fn a_run_that_fails_leaves_that_and_keeps_when_one_last_succeeded() {
    let world = World::new();
    let folder = Folder::new();
    let (path, file) = (folder.file(), folder.file().to_str().unwrap().to_owned());
    let broken = format!("postgres://app@127.0.0.1:{}/app", free_port());
    world.once(&["--metrics-file", &file, "--database-url", &broken], 69);
    let never = read(&path);
    assert_eq!((never["outboxd_last_run_success"], never["outboxd_last_run_exit_code"]), (0.0, 69.0));
    assert!(!never.contains_key("outboxd_last_success_timestamp_seconds"), "{never:?}");

    world.once(&["--metrics-file", &file], 0);
    let success = read(&path)["outboxd_last_success_timestamp_seconds"];
    for more in [["--database-url", &broken], ["--amqp-url", &format!("amqp://127.0.0.1:{}", free_port())]] {
        world.once(&[&["--metrics-file", file.as_str()], &more[..]].concat(), 69);
        let failed = read(&path);
        assert_eq!(failed["outboxd_last_run_success"], 0.0);
        assert_eq!(failed["outboxd_last_success_timestamp_seconds"], success);
        // What the table holds is known where only the broker is in trouble.
        assert_eq!(failed.contains_key("outboxd_events{status=\"waiting\"}"), more[0] == "--amqp-url");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_said_and_changes_nothing_else() {
    let mut world = World::new();
    let queue = world.queue();
    world.insert(&queue, "{}");
    let output = world.once(&["--metrics-file", "/nonexistent/outboxd.prom"], 0);
    assert_eq!(output.stdout, "claimed 1: published 1\n", "{output:?}");
    assert!(
        output.stderr.contains("writing metrics_file /nonexistent/outboxd.prom failed: No such file"),
        "{output:?}"
    );
}

#[test]
fn a_reader_never_sees_half_a_file() {
    let world = World::new();
    let folder = Folder::new();
    let (path, file) = (folder.file(), folder.file().to_str().unwrap().to_owned());
    world.once(&["--metrics-file", &file], 0);
    let whole = |text: &str| text.ends_with('\n') && text.contains("\noutboxd_backlog_timestamp_seconds ");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !over.load(Ordering::Relaxed) {
                let text = fs::read_to_string(&path).unwrap();
                assert!(whole(&text), "{text}");
                reads += 1;
            }
            reads
        });
        for _ in 0..5 {
            world.once(&["--metrics-file", &file], 0);
        }
        over.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 10);
    });
    assert_eq!(folder.entries(), ["outboxd.prom"]);
}

#[test]
fn a_relay_that_runs_writes_all_that_it_knows() {
    let mut world = World::new();
    let (queue, folder) = (world.queue(), Folder::new());
    world.insert(&queue, "{}");
    let path = folder.file();
    let _relay = world.start(&["--interval", "200ms", "--metrics-file", path.to_str().unwrap()]);
    wait_until("the file says that it is published", DEADLINE, || {
        let text = fs::read_to_string(&path).ok()?;
        (samples(&text).get("outboxd_events_published_total") == Some(&1.0)).then_some(())
    });
    assert!(read(&path).contains_key("outboxd_confirm_duration_seconds_count"));
}
