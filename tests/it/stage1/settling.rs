//! A confirm that is in hand is written as soon as the database takes it, whether anybody asks for something else or not.

use std::time::Duration;

use outboxd::config::Config;
use outboxd::relay::{Answer, Stage1};

use super::{now, write};
use crate::harness::wait_until;
use crate::world::{DEADLINE, World};

#[test]
fn a_confirm_that_could_not_be_written_is_written_later_without_another_request() {
    let mut world = World::new();
    let queue = world.queue();
    let mut config = Config::new(&world.database.url, &world.amqp_url).unwrap();
    config.interval = Duration::from_millis(100);
    let stage1 = Stage1::start(config).unwrap();
    let refuse = "
        create sequence tries;
        create function refuse() returns trigger language plpgsql as
            $$ begin perform nextval('tries'); raise exception 'not now'; end $$;
        create trigger refuse before update on event_outbox for each row execute function refuse()";
    world.client.batch_execute(refuse).unwrap();
    let id = write(&mut world, &queue);
    assert_eq!(now(&stage1, &id), Answer::Published);
    // The settle, and the last try for the confirms of that drain: all together, and one by one.
    let mut tries = || -> i64 { world.client.query_one("select last_value from tries", &[]).unwrap().get(0) };
    wait_until("it has given up", DEADLINE, || (tries() >= 3).then_some(()));
    world.client.batch_execute("drop trigger refuse on event_outbox").unwrap();
    wait_until("the confirm is written", DEADLINE, || (world.count("PUBLISHED") == 1).then_some(()));
    world.once(&["--min-age", "0s"], 0);
    assert_eq!(world.arrivals(&queue), [id]);
}
