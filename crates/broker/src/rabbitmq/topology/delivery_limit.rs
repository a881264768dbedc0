//! What the delivery limit of a quorum queue means for its messages and its consumers, by version. Pure.

use consign_core::finding::Finding;

use super::rules::{Server, bound, subject};
use super::{Queue, QueueKind, Topology};

/// After how many returns a message is given up from RabbitMQ 4.0 on; there is no limit by default before.
const DEFAULT_FROM_4: i64 = 20;

/// What becomes of a message beyond the limit.
enum Beyond {
    /// A queue of the topology takes it.
    Taken(String),
    /// The topology does not say.
    Unknown(String),
    Dropped {
        because: String,
        fix: &'static str,
    },
}

/// B36: reports the limit that holds, and where a message goes beyond it.
pub(super) fn judge(queue: &Queue, topology: &Topology, server: &Server, findings: &mut Vec<Finding>) {
    if queue.kind != QueueKind::Quorum {
        return;
    }
    let Some(limit) = effective(queue, server) else {
        findings.push(Finding::fine(
            "delivery-limit",
            subject(queue),
            "it has no delivery limit: consign alone decides how often a message is tried; a limit that a policy sets is \
             not visible over AMQP",
        ));
        return;
    };
    let beyond = beyond(queue, topology);
    let returned = format!("a message returned more than {limit} times ({})", origin(queue));
    let counted = counted(server);
    findings.push(match &beyond {
        Beyond::Taken(place) => Finding::fine(
            "delivery-limit",
            subject(queue),
            format!("{returned} goes to {place}; {counted}"),
        ),
        Beyond::Unknown(place) => Finding::fine(
            "delivery-limit",
            subject(queue),
            format!("{returned} goes to {place}, and whether a queue takes it there is not visible over AMQP; {counted}"),
        ),
        Beyond::Dropped { because, fix } => Finding::error(
            "delivery-limit-loses",
            subject(queue),
            format!("{returned} is dropped, since {because}; {counted}"),
            *fix,
        ),
    });
    if let Some(attempts_max) = queue.attempts_max {
        findings.push(judge_attempts(queue, attempts_max, limit, &beyond, server));
    }
}

/// Consign must be the one who gives a message up, since it does so with a proof or a record. The broker counts also
/// what consign does not: deliveries that went back unseen when a process stopped or lost its connection.
fn judge_attempts(queue: &Queue, attempts_max: u32, limit: i64, beyond: &Beyond, server: &Server) -> Finding {
    const FINE: &str = "attempts-below-delivery-limit";
    const PROBLEM: &str = "attempts-reach-delivery-limit";
    if server.from(4, 3) {
        let text = "consign gives a message up by itself: it returns with basic.nack, which does not count from 4.3 on";
        return Finding::fine(FINE, subject(queue), text);
    }
    if i64::from(attempts_max) < limit {
        let text = format!(
            "consign gives a message up by itself: attempts_max = {attempts_max} is below the {limit} returns after \
             which the broker would"
        );
        return Finding::fine(FINE, subject(queue), text);
    }
    let text = format!(
        "the broker may give a message up before consign does: attempts_max = {attempts_max}, and {limit} returns are \
         the broker's limit"
    );
    let lower = if limit > 1 { format!("set attempts_max below {limit}, or ") } else { "set ".to_owned() };
    let fix = format!(
        "{lower}delivery_limit above {attempts_max}; an existing queue must be deleted and declared again"
    );
    match beyond {
        Beyond::Dropped { .. } => Finding::error(PROBLEM, subject(queue), text, fix),
        Beyond::Taken(_) | Beyond::Unknown(_) => Finding::warning(PROBLEM, subject(queue), text, fix),
    }
}

/// The limit that holds, as far as no policy sets a lower one; `None` when there is none.
fn effective(queue: &Queue, server: &Server) -> Option<i64> {
    let by_default = server.from(4, 0).then_some(DEFAULT_FROM_4);
    queue.delivery_limit.or(by_default).filter(|limit| *limit >= 0)
}

fn origin(queue: &Queue) -> &'static str {
    if queue.delivery_limit.is_some() { "its delivery_limit" } else { "the default from RabbitMQ 4.0 on" }
}

fn counted(server: &Server) -> &'static str {
    if server.from(4, 3) {
        "rejects and lost connections count, nacks do not"
    } else {
        "every return counts, also while a consumer waits out an outage"
    }
}

fn beyond(queue: &Queue, topology: &Topology) -> Beyond {
    let Some(exchange) = &queue.dead_letter_exchange else {
        return Beyond::Dropped {
            because: "there is no dead-letter exchange".to_owned(),
            fix: "set dead_letter_exchange, or delivery_limit = -1 and let consign count the attempts",
        };
    };
    if exchange.is_empty() {
        let Some(key) = &queue.dead_letter_key else {
            return Beyond::Unknown("the queue that is named like its own routing key".to_owned());
        };
        let known = topology.queues.iter().any(|other| other.name == *key);
        let place = format!("queue {key:?}");
        return if known { Beyond::Taken(place) } else { Beyond::Unknown(place) };
    }
    let listed = topology.exchanges.iter().any(|known| known.name == *exchange);
    // What comes back to the queue it was given up by is dropped as a cycle.
    let others = bound(topology, exchange).filter(|other| other.name != queue.name);
    let takers: Vec<String> = others.map(subject).collect();
    match (takers.is_empty(), listed) {
        (false, _) => {
            Beyond::Taken(format!("{} through dead-letter exchange {exchange:?}", takers.join(" and ")))
        }
        (true, true) => Beyond::Dropped {
            because: format!("no other queue of the topology is bound to dead-letter exchange {exchange:?}"),
            fix: "bind a durable queue to it",
        },
        (true, false) => Beyond::Unknown(format!("dead-letter exchange {exchange:?}")),
    }
}

#[cfg(test)]
mod tests {
    use consign_amqp::ServerInfo;
    use consign_core::finding::Severity;

    use super::*;
    use crate::rabbitmq::{Exchange, ExchangeKind};

    fn quorum() -> Queue {
        Queue::durable("points", QueueKind::Quorum).bound_to("orders", "order.*")
    }

    /// With a queue behind the dead-letter exchange `dead`, and none behind `void`.
    fn findings(queue: Queue, version: &str) -> Vec<Finding> {
        let exchange = |name: &str| Exchange::durable(name, ExchangeKind::Fanout);
        let graveyard = Queue::durable("graveyard", QueueKind::Classic).bound_to("dead", "");
        let topology = Topology {
            exchanges: vec![exchange("orders"), exchange("dead"), exchange("void")],
            queues: vec![queue, graveyard],
        };
        let info =
            ServerInfo { product: "RabbitMQ".into(), version: version.into(), ..ServerInfo::default() };
        let mut findings = Vec::new();
        judge(&topology.queues[0], &topology, &Server::new(&info), &mut findings);
        findings
    }

    fn of(findings: &[Finding]) -> Vec<(&str, Severity)> {
        findings.iter().map(|finding| (finding.code, finding.severity)).collect()
    }

    fn text(queue: Queue, version: &str) -> String {
        findings(queue, version)[0].text.clone()
    }

    fn dead_lettered(exchange: &str) -> Queue {
        Queue { dead_letter_exchange: Some(exchange.into()), ..quorum() }
    }

    /// `B36` (rabbitmq/rabbitmq-server#11937).
    #[test]
    fn the_limit_is_twenty_from_4_0_on_and_none_before_unless_declared() {
        let limited = Queue { delivery_limit: Some(7), ..quorum() };
        let unlimited = Queue { delivery_limit: Some(-1), ..quorum() };

        assert_eq!(of(&findings(quorum(), "3.10.8")), [("delivery-limit", Severity::Fine)]);
        assert!(text(quorum(), "3.10.8").contains("no delivery limit"));
        assert!(text(quorum(), "4.0.5").contains("more than 20 times (the default from RabbitMQ 4.0 on)"));
        for version in ["3.10.8", "4.0.5"] {
            assert!(text(limited.clone(), version).contains("more than 7 times (its delivery_limit)"));
        }
        assert!(text(unlimited, "4.0.5").contains("no delivery limit"));
    }

    #[test]
    fn other_queue_types_have_no_delivery_limit() {
        for kind in [QueueKind::Classic, QueueKind::Stream] {
            let queue = Queue { kind, attempts_max: Some(100), ..quorum() };
            assert_eq!(findings(queue, "4.0.5"), []);
        }
    }

    #[test]
    fn the_place_beyond_the_limit_is_named_and_its_absence_is_an_error() {
        let by_key = |key: &str| Queue { dead_letter_key: Some(key.into()), ..dead_lettered("") };
        let fine = [
            (dead_lettered("dead"), "queue \"graveyard\" through dead-letter exchange \"dead\""),
            (dead_lettered("elsewhere"), "dead-letter exchange \"elsewhere\", and whether"),
            (by_key("graveyard"), "goes to queue \"graveyard\";"),
            (by_key("elsewhere"), "queue \"elsewhere\", and whether"),
            (dead_lettered(""), "named like its own routing key, and whether"),
        ];
        for (queue, place) in fine {
            assert_eq!(of(&findings(queue.clone(), "4.0.5")), [("delivery-limit", Severity::Fine)]);
            assert!(text(queue.clone(), "4.0.5").contains(place), "{}", text(queue, "4.0.5"));
        }
        let dropped = [
            (quorum(), "no dead-letter exchange"),
            (dead_lettered("void"), "no other queue"),
            (dead_lettered("orders"), "no other queue"),
        ];
        for (queue, because) in dropped {
            assert_eq!(of(&findings(queue.clone(), "4.0.5")), [("delivery-limit-loses", Severity::Error)]);
            assert!(text(queue, "4.0.5").contains(because));
        }
    }

    #[test]
    fn what_counts_against_the_limit_depends_on_the_version() {
        assert!(text(quorum(), "4.2.1").contains("every return counts"));
        assert!(text(quorum(), "4.3.0").contains("nacks do not"));
    }

    #[test]
    fn attempts_must_stay_below_the_limit_so_that_consign_decides() {
        const FINE: (&str, Severity) = ("attempts-below-delivery-limit", Severity::Fine);
        let attempts = |attempts_max, queue: Queue, version: &str| {
            let found = findings(Queue { attempts_max: Some(attempts_max), ..queue }, version);
            found.get(1).map(|finding| (finding.code, finding.severity))
        };
        let problem = |severity| Some(("attempts-reach-delivery-limit", severity));
        let limited = |limit| Queue { delivery_limit: Some(limit), ..dead_lettered("dead") };

        assert_eq!(attempts(19, dead_lettered("dead"), "4.0.5"), Some(FINE));
        assert_eq!(attempts(20, dead_lettered("dead"), "4.0.5"), problem(Severity::Warning));
        assert_eq!(attempts(20, dead_lettered("elsewhere"), "4.0.5"), problem(Severity::Warning));
        assert_eq!(attempts(20, quorum(), "4.0.5"), problem(Severity::Error));
        assert_eq!(attempts(5, limited(5), "3.10.8"), problem(Severity::Warning));
        assert_eq!(attempts(5, limited(6), "3.10.8"), Some(FINE));
        assert_eq!(attempts(1, limited(1), "4.0.5"), problem(Severity::Warning));
        assert_eq!(attempts(1000, limited(-1), "4.0.5"), None);
        assert_eq!(attempts(1000, quorum(), "3.10.8"), None);
        assert_eq!(attempts(1000, quorum(), "4.3.0"), Some(FINE));
    }

    #[test]
    fn the_fix_names_only_attempts_that_can_be_configured() {
        let fix = |limit| {
            let queue = Queue { delivery_limit: Some(limit), attempts_max: Some(5), ..quorum() };
            findings(queue, "4.0.5")[1].fix.clone()
        };

        assert!(fix(2).starts_with("set attempts_max below 2, or delivery_limit above 5;"));
        assert!(fix(1).starts_with("set delivery_limit above 5;"), "attempts_max is 1 at least");
    }
}
