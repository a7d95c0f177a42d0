//! What the broker's answers mean: the connection, its alarms, and whether what events are sent to is there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::config::{Broker, Parts};
use crate::error::{Kind, Result};
use crate::publisher::{self, Alarms, BrokerInfo, Session};

use super::routing::{Routed, There};
use super::{Finding, database};

/// The versions that everything here is tested on.
const TESTED: &str = "3.10, 4.0 and 4.3";

/// The longest wait for the broker's goodbye.
const CLOSE_MAX: Duration = Duration::from_secs(2);

/// Whether a relay that was frozen might send what others have sent since.
pub(super) fn short_claim(parts: &Parts) -> Option<Finding> {
    let (broker, idle) = (parts.broker.as_ref()?, parts.database.as_ref()?.claim_max_idle);
    Some(match publisher::cut_off(broker.url.expose()) {
        Some(cut_off) if idle >= cut_off => return None,
        Some(cut_off) => Finding::warning(
            "claim_max_idle",
            format!(
                "claim_max_idle {idle:?} is below {cut_off:?}, after which the broker closes a silent connection: a relay \
                 that was frozen may send events twice"
            ),
            "raise it, or lower heartbeat in AMQP_URL",
        ),
        None => Finding::warning(
            "claim_max_idle",
            "the broker never closes a silent connection (heartbeat=0): a relay that was frozen may send events twice",
            "take heartbeat=0 out of AMQP_URL",
        ),
    })
}

/// The findings; and what is there of what the routes lead to.
pub(super) fn look(config: &Broker, routes: &mut [Routed]) -> Vec<Finding> {
    let (asked, url) = (Instant::now(), config.url.expose());
    // Nothing is published but one message to nobody.
    let mut session = match Session::open(&Broker { workers: 1, ..config.clone() }) {
        Ok(session) => session,
        Err(error) => return vec![Finding::of("broker", &error)],
    };
    let mut findings = vec![reached(url, asked.elapsed()), version(&session.broker())];
    let to_default = routes.iter().any(|it| it.to().is_some_and(|(exchange, _)| exchange.is_empty()));
    findings.push(match session.probe() {
        Ok(Alarms::None) => Finding::ok("alarms", "none: it takes messages"),
        Ok(Alarms::NotKnown) if to_default => Finding::warning(
            "alarms",
            "a message to the default exchange was not confirmed, and events would go there",
            "let the user write to it: rabbitmqctl set_permissions, with amq\\.default in the second pattern",
        ),
        Ok(Alarms::NotKnown) => Finding::ok(
            "alarms",
            "not known: the user may not publish to the default exchange, nor does any route",
        ),
        Err(error) => Finding::of("alarms", &error),
    });
    match targets(&mut session, routes) {
        Ok(seen) => findings.extend(seen),
        Err(error) => findings.push(Finding::of("exchange", &error)),
    }
    session.close(CLOSE_MAX);
    findings
}

fn reached(url: &str, took: Duration) -> Finding {
    let (user, is_encrypted) = publisher::login(url);
    let who = user.map_or("by its certificate".into(), |user| format!("as {user}"));
    let how = if is_encrypted { "over TLS" } else { "without TLS" };
    let address = publisher::describe_url(url);
    Finding::ok("broker", format!("{address} lets us in {who}, {how}, after {}", database::short(took)))
}

fn version(broker: &BrokerInfo) -> Finding {
    let BrokerInfo { product, version } = broker;
    let tested = format!("outboxd is tested on RabbitMQ {TESTED}");
    if product != "RabbitMQ" {
        return Finding::warning("broker_version", format!("{product} {version} is not RabbitMQ"), tested);
    }
    Finding::ok("broker_version", format!("{product} {version}; {tested}"))
}

/// Asks for each exchange once, and for each queue that the default exchange leads to.
fn targets(session: &mut Session, routes: &mut [Routed]) -> Result<Vec<Finding>> {
    let to: Vec<_> =
        routes.iter().filter_map(|it| it.to().map(|(a, b)| (a.to_owned(), b.to_owned()))).collect();
    let exchanges: BTreeSet<_> =
        to.iter().map(|(exchange, _)| exchange).filter(|it| !it.is_empty()).collect();
    let queues: BTreeSet<_> = routes.iter().filter_map(Routed::queue).map(str::to_owned).collect();
    let mut findings = Vec::new();
    let (mut known, mut known_queues) = (BTreeMap::new(), BTreeMap::new());
    for exchange in exchanges {
        let answer = session.check_exchange(exchange)?;
        findings.push(match &answer {
            Ok(()) => Finding::ok("exchange", format!("{exchange:?} is there")),
            Err(reason) => {
                let (text, remedy) = reason.rsplit_once(": ").unwrap_or((reason, "declare it"));
                Finding::error("exchange", Kind::Configuration, text).with_remedy(remedy)
            }
        });
        known.insert(exchange.clone(), answer.is_ok());
    }
    for queue in queues {
        let answer = session.check_queue(&queue)?;
        known_queues.insert(queue, answer.is_ok());
    }
    for route in routes {
        let queue = route.queue().and_then(|it| known_queues.get(it)).copied();
        let exchange = route.to().and_then(|(exchange, _)| known.get(exchange)).copied();
        route.there = match queue.or(exchange) {
            Some(true) => There::Yes,
            Some(false) => There::No,
            None => There::NotKnown,
        };
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn what_is_no_rabbitmq_is_warned_of() {
        for (product, expected) in [("RabbitMQ", State::Ok), ("LavinMQ", State::Warning)] {
            let found = version(&BrokerInfo { product: product.into(), version: "4.1.0".into() });
            assert_eq!(found.state, expected, "{found:?}");
            assert!(found.text.contains("4.1.0"), "{found:?}");
        }
    }
}
