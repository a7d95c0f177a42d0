//! The broker: reaching it, its alarms, and who we are there.

use super::{PASSWORD, Told};
use crate::harness::{Rabbit, RabbitOptions, wait_until};
use crate::world::{DEADLINE, World};

fn told(world: &World, amqp_url: &str) -> Told {
    Told::by(&[], &[("DATABASE_URL", &world.database.url), ("AMQP_URL", amqp_url)])
}

#[test]
fn a_refused_login_and_an_unknown_virtual_host_end_with_77() {
    let world = World::new();
    let url = world.amqp_url.replace("guest:guest@", &format!("guest:{PASSWORD}@"));
    told(&world, &url).ends(77).is(
        "broker",
        "error",
        &["login refused", "check user and password in AMQP_URL"],
    );
    let url = world.amqp_url.replace("%2F", "nowhere");
    told(&world, &url).ends(77).is("broker", "error", &["nowhere", "check the virtual host"]);
}

#[test]
fn an_alarm_ends_with_69_and_what_the_user_may_not_do_is_told() {
    let rabbit = Rabbit::start(&RabbitOptions::default());
    let mut world = World::with_broker(&rabbit.url());
    told(&world, &rabbit.url()).ends(0).is("alarms", "ok", &["takes messages"]);
    rabbit.memory_alarm(true);
    // It takes the broker a moment to tell its connections.
    let seen = wait_until("the alarm is told", DEADLINE, || {
        let seen = told(&world, &rabbit.url());
        (seen.output.code == Some(69)).then_some(seen)
    });
    seen.is("alarms", "error", &["blocks publishers", "free its memory"]).is("indexes", "ok", &[]);
    rabbit.memory_alarm(false);
    wait_until("the alarm is over", DEADLINE, || {
        (told(&world, &rabbit.url()).output.code == Some(0)).then_some(())
    });

    rabbit.ctl(&["add_user", "app", PASSWORD]);
    rabbit.ctl(&["set_permissions", "app", "^$", "^orders$", "^$"]);
    let url = rabbit.url().replace("guest:guest@", &format!("app:{PASSWORD}@"));
    let seen = told(&world, &url);
    seen.ends(0).is("broker", "ok", &["as app"]).is("alarms", "ok", &["not known"]);
    // Where events go to the default exchange, it matters.
    let queue = world.queue();
    world.insert(&queue, "{}");
    told(&world, &url).ends(0).is("alarms", "warning", &["not confirmed", "set_permissions"]);
    rabbit.ctl(&["set_permissions", "app", "^$", r"^amq\.default$", "^$"]);
    told(&world, &url).ends(0).is("alarms", "ok", &["takes messages"]);
}

#[test]
fn a_claim_that_is_shorter_than_the_brokers_patience_is_a_warning() {
    let world = World::new();
    Told::of(&world, &["--claim-max-idle", "10s"]).ends(0).is(
        "claim_max_idle",
        "warning",
        &["10s is below 30s", "raise it"],
    );
    let url = format!("{}?heartbeat=0", world.amqp_url);
    told(&world, &url).ends(0).is("claim_max_idle", "warning", &["heartbeat=0"]);
}
