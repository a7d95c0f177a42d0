//! `once --max-duration` beside servers that do not answer: it ends all the same, and says and leaves what it knows.

use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{env, fs};

use crate::harness::{Direction, Postgres, PostgresOptions, Proc, Proxy, Servers, unique, wait_until};
use crate::world::{DEADLINE, OUTBOXD, World, init};

/// Far less than what a broker or a database that is silent may take without a bound (15 s and more).
const SOON: Duration = Duration::from_secs(13);

fn file() -> PathBuf {
    env::temp_dir().join(unique("outboxd-bounded"))
}

/// A way to the world's broker that can be made silent.
fn way(world: &mut World) -> Proxy {
    let proxy = Proxy::to(url::Url::parse(&world.amqp_url).unwrap().port().unwrap());
    world.amqp_url = format!("amqp://guest:guest@127.0.0.1:{}/%2F", proxy.port());
    proxy
}

fn start(world: &World, arguments: &[&str]) -> Proc {
    let environment = [("DATABASE_URL", world.database.url.as_str()), ("AMQP_URL", &world.amqp_url)];
    Proc::spawn(OUTBOXD, &[&["once"], arguments].concat(), &environment)
}

/// No confirm comes: what was sent is marked, and nothing is held any more.
#[test]
fn a_silent_broker_is_left_within_grace() {
    let mut world = World::new();
    let (queue, proxy) = (world.queue(), way(&mut world));
    world.insert_many(&queue, 20);
    // It swallows the confirms, and no more: the connection is there first.
    let slowly = ["--max-duration", "1s", "--grace", "4s", "--batch-rows", "1", "--window", "1", "--json"];
    proxy.delay(Direction::ToClient, Duration::from_millis(100));
    let began = Instant::now();
    let relay = start(&world, &slowly);
    wait_until(&format!("one is published:\n{relay}"), DEADLINE, || {
        (world.count("PUBLISHED") > 0).then_some(())
    });
    proxy.swallow(Direction::ToClient, true);
    let ended = relay.wait(DEADLINE);
    assert!(began.elapsed() < SOON, "{:?}: {ended:?}", began.elapsed());
    let document: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((ended.code, &document["limit"]), (Some(75), &"max_duration".into()), "{ended:?}");
    assert!(document["unconfirmed"].as_u64().unwrap() > 0, "{document}");
    let marked = "select count(*) from event_outbox where last_error like 'unconfirmed%'";
    assert!(world.client.query_one(marked, &[]).unwrap().get::<_, i64>(0) > 0);
}

#[test]
fn a_database_that_no_longer_answers_is_left_at_the_end_of_grace() {
    let postgres = Postgres::start(&PostgresOptions::default());
    let mut world = World::on(postgres.database_from("outbox", init), Servers::shared().amqp_url());
    let (queue, path) = (world.queue(), file());
    world.insert_many(&queue, 5000);
    let slowly = ["--max-duration", "2s", "--grace", "1s", "--batch-rows", "5", "--window", "1"];
    let began = Instant::now();
    let relay = start(&world, &[&slowly[..], &["--metrics-file", path.to_str().unwrap()]].concat());
    wait_until(&format!("some are published:\n{relay}"), DEADLINE, || {
        (world.count("PUBLISHED") > 0).then_some(())
    });
    postgres.freeze();
    let ended = relay.wait(DEADLINE);
    let took = began.elapsed();
    postgres.thaw();
    assert!(took < SOON, "{took:?}: {ended:?}");
    assert_eq!(ended.code, Some(69), "{ended:?}");
    assert!(ended.stderr.contains("outboxd: still not done 1s (grace) after --max-duration"), "{ended:?}");
    assert!(ended.stdout.contains("--max-duration 2s ended it, more is due"), "{ended:?}");
    let left = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    for line in ["outboxd_last_run_exit_code 69", "outboxd_last_run_success 0"] {
        assert!(left.lines().any(|it| it == line), "{left}");
    }
    // What it told of what was published is what the table says.
    let told = left.lines().find_map(|it| it.strip_prefix("outboxd_last_run_events{outcome=\"published\"} "));
    let told: i64 = told.unwrap().parse().unwrap();
    let published = world.count("PUBLISHED");
    // A commit may have been on its way.
    assert!(told > 0 && told <= published && published <= told + 20, "{told} of {published}");
}

#[test]
fn the_backlog_is_read_once_for_the_summary_and_the_file() {
    let postgres = Postgres::start(&PostgresOptions::default());
    let mut world = World::on(postgres.database_from("outbox", init), Servers::shared().amqp_url());
    let (queue, path) = (world.queue(), file());
    let sql = format!("alter database {} set log_statement = 'all'", world.database.name);
    world.client.batch_execute(&sql).unwrap();
    let reads = || {
        let log = fs::read_to_string(postgres.log_path()).unwrap();
        log.matches("\n    count(*) filter (where due and held)").count()
            + log.matches("\n\t    count(*) filter (where due and held)").count()
    };
    // Nothing due, and a bound that was met: both look at what is left.
    for (events, arguments, expected) in [(0, &[][..], 1), (3, &["--max-events", "2"], 2)] {
        world.insert_many(&queue, events);
        let arguments = [arguments, &["--metrics-file", path.to_str().unwrap()]].concat();
        let ended = start(&world, &arguments).wait(DEADLINE);
        assert!(matches!(ended.code, Some(0 | 75)), "{ended:?}");
        assert!(fs::read_to_string(&path).unwrap().contains("\noutboxd_oldest_due_age_seconds "));
        assert_eq!(reads(), expected, "{arguments:?}");
    }
    fs::remove_file(&path).unwrap();
}
