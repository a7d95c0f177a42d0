//! The rights that the README gives to each role are enough for what it does, and for no more.

use std::fs;

use postgres::{Client, NoTls};

use super::{Told, run};
use crate::harness::{Broker, ExchangeType, Postgres, PostgresOptions, Rabbit, RabbitOptions, Servers};
use crate::world::{World, init};

/// The text between two marks of the README, without the fence around it.
fn block(name: &str) -> String {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let (_, rest) = readme.split_once(&format!("<!-- {name} -->")).unwrap();
    let (block, _) = rest.split_once(&format!("<!-- /{name} -->")).unwrap();
    block.lines().filter(|line| !line.starts_with("```")).collect::<Vec<_>>().join("\n")
}

/// What the server says to a statement of a role.
fn refused(client: &mut Client, sql: &str) -> String {
    let error = client.batch_execute(sql).expect_err(sql);
    error.as_db_error().map(|it| it.code().code().to_owned()).unwrap_or_default()
}

#[test]
fn each_role_of_the_database_may_do_its_work_and_no_more() {
    let server = Postgres::start(&PostgresOptions::default());
    let mut world = World::on(server.database_from("outbox", init), Servers::shared().amqp_url());
    let url = world.database.url.clone();
    assert_eq!(run(&["init", "--inbox"], &[("DATABASE_URL", &url)]).code, Some(0));
    world.client.batch_execute(&block("database grants")).unwrap();
    let url_of = |role: &str| url.replace("postgres@", &format!("{role}@"));
    let session = |role: &str| Client::connect(&url_of(role), NoTls).unwrap();
    let queue = world.queue();
    let amqp_url = world.amqp_url.clone();
    let run_as = |role: &str, arguments: &[&str]| {
        run(arguments, &[("DATABASE_URL", &url_of(role)), ("AMQP_URL", &amqp_url)])
    };

    // The writer appends, by the function and by hand, and reads and changes nothing.
    assert_eq!(run_as("outbox_writer", &["enqueue", &queue]).code, Some(0));
    let mut writer = session("outbox_writer");
    let insert =
        format!("insert into event_outbox (event_id, event_type, payload) values ('1', '{queue}', '{{}}')");
    writer.batch_execute(&insert).unwrap();
    for sql in [
        "select payload from event_outbox",
        "update event_outbox set status = 'PUBLISHED'",
        "delete from event_outbox",
        "drop table event_outbox",
    ] {
        assert_eq!(refused(&mut writer, sql), "42501", "{sql}");
    }

    // The relay publishes them, refuses and expires others; and neither writes, rewrites nor deletes.
    world.insert("nobody.listens", "{}");
    world.insert_with(&queue, "{}", "expired_at", "now() - interval '1 hour'");
    let output = run_as("outbox_relay", &["once", "--min-age", "0s"]);
    assert_eq!(output.stdout, "claimed 4: published 2, failed 1, expired 1\n", "{output:?}");
    let told = Told::by(&[], &[("DATABASE_URL", &url_of("outbox_relay")), ("AMQP_URL", &amqp_url)]);
    told.is("grants", "ok", &["role outbox_relay may select, update"]);
    assert_eq!(run_as("outbox_relay", &["status"]).code, Some(0));
    assert_eq!(run_as("outbox_relay", &["skip", "--status", "failed"]).code, Some(0));
    let mut relay = session("outbox_relay");
    for sql in [
        "insert into event_outbox (event_id, event_type, payload) values ('2', 'x', '')",
        "update event_outbox set payload = ''",
        "update event_outbox set event_id = ''",
        "delete from event_outbox",
        "truncate event_outbox",
    ] {
        assert_eq!(refused(&mut relay, sql), "42501", "{sql}");
    }

    // Who purges deletes what is finished.
    let purge = ["purge", "--older-than", "0s"];
    assert_eq!(run_as("outbox_relay", &purge).code, Some(77));
    assert_eq!(run_as("outbox_purger", &purge).code, Some(0));
    let left: i64 = world.client.query_one("select count(*) from event_outbox", &[]).unwrap().get(0);
    assert_eq!(left, 0);
    assert_eq!(refused(&mut session("outbox_purger"), "update event_outbox set status = 'DEAD'"), "42501");
    world.client.batch_execute("grant outbox_purger to outbox_relay").unwrap();
    let purging = ["--retention", "1d"];
    let told = Told::by(&purging, &[("DATABASE_URL", &url_of("outbox_relay")), ("AMQP_URL", &amqp_url)]);
    told.ends(0).is("grants", "ok", &["and delete from"]);

    // The consumer notes what it has handled, and forgets it.
    let mut consumer = session("outbox_consumer");
    let mut first_time = || {
        let mut tx = consumer.transaction().unwrap();
        let first = outboxd::inbox::first_time(&mut tx, "billing", "1").unwrap();
        tx.commit().unwrap();
        first
    };
    assert_eq!((first_time(), first_time()), (true, false));
    assert_eq!(outboxd::inbox::purge(&mut consumer, std::time::Duration::ZERO, 10).unwrap(), 1);
    assert_eq!(refused(&mut consumer, "select from event_outbox"), "42501");
    assert_eq!(refused(&mut consumer, "insert into event_outbox default values"), "42501");
}

#[test]
fn the_relays_user_of_the_broker_may_publish_where_it_has_to_and_nothing_else() {
    let own;
    let rabbit = match Servers::shared().rabbit() {
        Some(rabbit) => rabbit,
        None => {
            own = Rabbit::start(&RabbitOptions::default());
            &own
        }
    };
    rabbit.ctl(&["add_vhost", "shop"]);
    rabbit.ctl(&["set_permissions", "-p", "shop", "guest", ".*", ".*", ".*"]);
    for line in block("broker grants").lines().filter(|line| !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().map(|word| word.trim_matches('\'')).collect();
        assert_eq!(words[0], "rabbitmqctl", "{line}");
        rabbit.ctl(&words[1..]);
    }
    let admin = Broker::open(&rabbit.url().replace("%2F", "shop"));
    let url = rabbit.url().replace("guest:guest@", "outboxd:change-me@").replace("%2F", "shop");
    for exchange in ["orders", "prices", "secrets"] {
        admin.declare_exchange(exchange, ExchangeType::Fanout);
        admin.declare_queue(exchange, &[]);
        admin.bind(exchange, exchange, "");
    }
    let mut world = World::with_broker(&rabbit.url());
    world.amqp_url = url.clone();
    let to = |exchange: &str| format!("now() - interval '1 hour', '{exchange}'");
    for exchange in ["orders", "prices"] {
        world.insert_with("x", "{}", "created_at, exchange", &to(exchange));
    }
    world.insert("orders", "{}");
    let output = world.once(&[], 0);
    assert_eq!(output.stdout, "claimed 3: published 3\n", "{output:?}");
    world.insert_with("x", "{}", "created_at, exchange", &to("secrets"));
    let output = world.once(&[], 75);
    assert_eq!(output.stdout, "claimed 1: failed 1\n", "{output:?}");
    let arrived = ["orders", "prices", "secrets"].map(|queue| admin.queue_len(queue));
    assert_eq!(arrived, [2, 1, 0]);
    world.client.batch_execute("delete from event_outbox where status = 'FAILED'").unwrap();
    Told::of(&world, &[]).ends(0).is("broker", "ok", &["as outboxd"]).is("alarms", "ok", &["none"]);

    // It declares, binds and reads nothing.
    let mut connection = amiquip::Connection::insecure_open(&url).unwrap();
    let mut is_refused = |what: &str, ask: &dyn Fn(&amiquip::Channel) -> amiquip::Result<()>| {
        let channel = connection.open_channel(None).unwrap();
        let answer = ask(&channel);
        assert!(
            matches!(answer, Err(amiquip::Error::ServerClosedChannel { code: 403, .. })),
            "{what}: {answer:?}"
        );
    };
    is_refused("declaring", &|it| {
        it.queue_declare("mine", amiquip::QueueDeclareOptions::default()).map(drop)
    });
    is_refused("binding", &|it| it.queue_bind("orders", "prices", "", amiquip::FieldTable::new()));
    is_refused("reading", &|it| it.basic_get("orders", true).map(drop));
}
