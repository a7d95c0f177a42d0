//! Times that are stored without a zone, when the database, the session and the application each live in another one.

use std::time::{SystemTime, UNIX_EPOCH};

use super::{EVENTS, RUN, amqp_url};
use crate::harness::{Proc, Servers, wait_until};
use crate::world::{DEADLINE, OUTBOXD, World};

/// The original's table.
const ZONELESS: &str = "create table event_outbox (
    id bigserial primary key, event_id varchar(26) not null unique, event_type varchar(100) not null,
    payload json not null, status varchar(20) not null default 'WAITING', created_at timestamp not null,
    last_retried_at timestamp, expired_at timestamp, fail_count integer not null default 0)";

/// An outbox of zone-less times. The database's own zone is one, the relay's sessions have another by their options, and
/// what the application writes is in neither.
fn world() -> World {
    let mut world = World::on(Servers::shared().database(), amqp_url());
    let name = world.database.name.clone();
    world.client.batch_execute(&format!("alter database {name} set timezone = 'America/New_York'")).unwrap();
    world.client.batch_execute(ZONELESS).unwrap();
    assert_eq!(world.outboxd(&["init"]).code, Some(0));
    world.database.url += "?options=-c%20TimeZone%3DAmerica/Caracas";
    world
}

/// Writes an event as an application in this zone does; the times are SQL that is added to its clock.
fn write(world: &mut World, zone: &str, event_type: &str, age: &str, life: &str) -> i64 {
    let sql = format!(
        "insert into event_outbox (event_id, event_type, payload, created_at, expired_at)
         values ($1, $2, '{{}}', (clock_timestamp() at time zone '{zone}') - interval '{age}',
             (clock_timestamp() at time zone '{zone}') + {life}::interval) returning id"
    );
    let event_id = ulid::Ulid::generate().to_string();
    world.client.query_one(&sql, &[&event_id, &event_type]).unwrap().get(0)
}

fn status(world: &mut World, id: i64) -> String {
    world.row(id).status
}

/// How far a column is from now, in seconds, read by the clock of this zone.
fn distance(world: &mut World, zone: &str, column: &str, id: i64) -> f64 {
    let sql = format!(
        "select extract(epoch from {column} - (clock_timestamp() at time zone '{zone}'))::float8 \
         from event_outbox where id = $1"
    );
    world.client.query_one(&sql, &[&id]).unwrap().get(0)
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// One zone ahead of the relay's and one behind it, with and without summer time.
const ZONES: [&str; 4] = ["Asia/Tokyo", "Europe/Berlin", "America/Los_Angeles", "UTC"];

#[test]
fn age_and_deadline_are_read_by_the_applications_zone() {
    for zone in ZONES {
        let mut world = world();
        let queue = world.queue();
        let due = write(&mut world, zone, &queue, "5 minutes", "null");
        let young = write(&mut world, zone, &queue, "1 minute", "null");
        let alive = write(&mut world, zone, &queue, "5 minutes", "'10 minutes'");
        let over = write(&mut world, zone, &queue, "5 minutes", "'-1 second'");
        let output = world.once(&["--min-age", "3m", "--time-zone", zone], 0);
        let found = [due, young, alive, over].map(|id| status(&mut world, id));
        assert_eq!(found, ["PUBLISHED", "WAITING", "PUBLISHED", "EXPIRED"], "{zone}: {output:?}");
        for message in world.broker.drain_ready(&queue) {
            // Its creation, as the moment that it was.
            let age = now_s().abs_diff(message.timestamp.unwrap());
            assert!((290..400).contains(&age), "{zone}: {age} s");
            if let Some(expiration) = message.expiration {
                let left: u64 = expiration.parse().unwrap();
                assert!((500_000..=600_000).contains(&left), "{zone}: {left} ms");
            }
        }
        assert!(distance(&mut world, zone, "last_retried_at", due).abs() < 60.0, "{zone}");
        let output = world.once(&["--min-age", "0s", "--max-age", "50s", "--time-zone", zone], 0);
        assert_eq!(status(&mut world, young), "EXPIRED", "{zone}: {output:?}");
    }
}

/// Otherwise the test above proves nothing.
#[test]
fn without_the_setting_the_sessions_zone_counts() {
    let mut world = world();
    let queue = world.queue();
    let tokyo = write(&mut world, "Asia/Tokyo", &queue, "5 minutes", "null");
    let caracas = write(&mut world, "America/Caracas", &queue, "5 minutes", "null");
    world.once(&[], 0);
    assert_eq!(status(&mut world, tokyo), "WAITING");
    assert_eq!(status(&mut world, caracas), "PUBLISHED");
}

#[test]
fn a_time_in_summer_is_the_moment_it_was_in_summer() {
    let mut world = world();
    let queue = world.queue();
    let sql = "insert into event_outbox (event_id, event_type, payload, created_at) \
        values ('summer', $1, '{}', '2024-07-01 12:00'), ('winter', $1, '{}', '2024-01-01 12:00')";
    world.client.execute(sql, &[&queue]).unwrap();
    world.once(&["--time-zone", "Europe/Berlin"], 0);
    let times: Vec<_> = world.broker.drain_ready(&queue).iter().map(|it| it.timestamp.unwrap()).collect();
    // 10:00 and 11:00 UTC.
    assert_eq!(times, [1_719_828_000, 1_704_106_800]);
}

#[test]
fn what_the_relay_writes_is_in_the_applications_zone_and_refusals_come_back_in_time() {
    let mut world = world();
    let zone = "Asia/Tokyo";
    let enqueued =
        world.outboxd(&["enqueue", "x", "--expires-in", "1h", "--delay", "30m", "--time-zone", zone]);
    assert_eq!(enqueued.code, Some(0), "{enqueued:?}");
    let id: i64 = world.client.query_one("select id from event_outbox", &[]).unwrap().get(0);
    assert!(distance(&mut world, zone, "created_at", id).abs() < 60.0);
    assert!((distance(&mut world, zone, "expired_at", id) - 3600.0).abs() < 60.0);
    let status = world.outboxd(&["status", "--json", "--time-zone", zone]);
    assert!(status.stdout.contains("\"scheduled\":1"), "{status:?}");

    // Refused, and due again after its back-off: `last_retried_at` has no zone, `available_at` has.
    let missing = crate::harness::unique("missing");
    let refused = write(&mut world, zone, &missing, "5 minutes", "null");
    let options = ["--time-zone", zone, "--backoff-base", "1s", "--backoff-max", "1s", "--max-failures", "9"];
    let relay = world.start(&[&RUN[..], &options].concat());
    wait_until(&format!("it is refused twice:\n{relay}"), DEADLINE, || {
        (world.row(refused).fail_count >= 2).then_some(())
    });
    world.broker.declare_queue(&missing, &[]);
    wait_until(&format!("it is published:\n{relay}"), DEADLINE, || {
        (world.row(refused).status == "PUBLISHED").then_some(())
    });
    assert!(distance(&mut world, zone, "last_retried_at", refused).abs() < 60.0);
}

#[test]
fn the_backlog_is_counted_in_the_applications_zone() {
    let mut world = world();
    for age in ["1 hour", "10 seconds"] {
        write(&mut world, "Asia/Tokyo", "x", age, "null");
    }
    let shown = |zone: &str| {
        let output = world.outboxd(&["status", "--json", "--time-zone", zone]);
        let json: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        json.to_string()
    };
    let tokyo = shown("Asia/Tokyo");
    assert!(tokyo.contains("\"due\":1") && tokyo.contains("\"younger_than_min_age\":1"), "{tokyo}");
    assert!(shown("UTC").contains("\"due\":0"));
}

#[test]
fn an_operators_filters_are_read_in_the_applications_zone() {
    let mut world = world();
    let queue = world.queue();
    for age in ["1 hour", "10 seconds"] {
        write(&mut world, "Asia/Tokyo", &queue, age, "null");
    }
    let listed = |zone: &str| {
        let output = world.outboxd(&["list", "--json", "--older-than", "30m", "--time-zone", zone]);
        assert_eq!(output.code, Some(0), "{output:?}");
        output.stdout.matches(&queue).count()
    };
    assert_eq!((listed("Asia/Tokyo"), listed("UTC")), (1, 0));
}

#[test]
fn late_confirms_are_written_in_the_applications_zone() {
    let mut world = world();
    let queue = world.queue();
    world
        .client
        .batch_execute(
            "create sequence calls;
             create function refuse() returns trigger language plpgsql as $$ begin
                 if nextval('calls') = 1 then raise exception 'not now' using errcode = '40001'; end if;
                 return new;
             end $$;
             create trigger refuse before update on event_outbox for each row execute function refuse()",
        )
        .unwrap();
    let ids: Vec<i64> =
        (0..EVENTS).map(|_| write(&mut world, "Asia/Tokyo", &queue, "5 minutes", "null")).collect();
    let relay = world.start(&[&RUN[..], &["--time-zone", "Asia/Tokyo"]].concat());
    wait_until(&format!("all are published:\n{relay}"), DEADLINE, || {
        (world.count("PUBLISHED") == EVENTS).then_some(())
    });
    assert!(distance(&mut world, "Asia/Tokyo", "last_retried_at", ids[0]).abs() < 60.0);
    assert_eq!(world.arrivals(&queue).len() as i64, EVENTS);
}

#[test]
fn a_zone_that_the_server_does_not_know_is_a_clear_error_at_the_first_session() {
    let world = world();
    let amqp = [("DATABASE_URL", world.database.url.as_str()), ("AMQP_URL", amqp_url())];
    for command in [&["once"][..], &["enqueue", "x"], &["status"]] {
        let arguments = [command, &["--time-zone", "Mars/Olympus"]].concat();
        let output = Proc::run(OUTBOXD, &arguments, &amqp, DEADLINE);
        let told = format!("{}{}", output.stdout, output.stderr);
        assert_eq!(output.code, Some(78), "{output:?}");
        assert!(told.contains("the server does not know the zone: check time_zone"), "{output:?}");
    }
    let quoted = world.outboxd(&["enqueue", "x", "--time-zone", "UTC'; drop table event_outbox; --"]);
    assert!(quoted.stderr.contains("expected none, or a time zone"), "{quoted:?}");
}

#[test]
fn a_relay_beside_others_takes_what_is_written_now() {
    let mut world = world();
    let queue = world.queue();
    let relay = world.start(&[&RUN[..], &["--time-zone", "Asia/Tokyo"]].concat());
    let id = write(&mut world, "Asia/Tokyo", &queue, "0 seconds", "null");
    wait_until(&format!("it is published:\n{relay}"), DEADLINE, || {
        (world.row(id).status == "PUBLISHED").then_some(())
    });
}
