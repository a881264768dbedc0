//! What the broker's word on a publish comes to. Pure.

use consign_amqp::{ChannelError, ChannelId, CloseReason, ClosedBy, NotSent, Verdict};
use consign_core::outcome::{ChannelId as CoreChannelId, DeliveryTag, Doubt, Outcome, Proof};

/// Whether what happens to a channel or connection must be the message's own doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Company {
    /// Nothing else was in flight.
    Alone,
    /// Others were in flight too: all of them are suspects.
    Others,
}

/// The outcome of a publish on `channel`. `ended` is why the channel ended, when it has; `beside` says whether other
/// publisher channels share its connection. The counts in a verdict are those of the channel itself.
pub(super) fn outcome(
    verdict: Verdict,
    channel: ChannelId,
    ended: Option<ChannelError>,
    beside: Company,
) -> Outcome {
    let on_channel = |in_flight: usize| if in_flight == 1 { Company::Alone } else { Company::Others };
    let on_connection =
        |in_flight| if beside == Company::Alone { on_channel(in_flight) } else { Company::Others };
    match verdict {
        Verdict::Acked { tag } => Outcome::Confirmed(Proof::PublisherConfirm {
            channel: CoreChannelId { incarnation: channel.incarnation, number: channel.number },
            tag: DeliveryTag(tag),
        }),
        Verdict::Returned { code, text } => Outcome::Unroutable { code, text },
        Verdict::Nacked => refused("the broker refused the message (basic.nack)".to_owned()),
        Verdict::NotSent { reason: NotSent::Invalid(reason) } => Outcome::Rejected { reason },
        Verdict::NotSent { reason: NotSent::Unavailable(reason) } => refused(reason),
        Verdict::TimedOut { .. } => Outcome::Unknown(Doubt::ConfirmTimedOut),
        Verdict::ChannelClosed { code, text, in_flight } => closed(code, text, on_channel(in_flight)),
        Verdict::ConnectionLost { reason, in_flight } => match ended {
            Some(ChannelError::ConnectionLost(end)) if blames_a_message(&end) => {
                closed(end.code, end.text, on_connection(in_flight))
            }
            _ => Outcome::Unknown(Doubt::ConnectionLost(reason)),
        },
    }
}

/// Hard errors a broker closes the whole connection with because of something that was sent on it. 541 is an
/// internal error, met with header types the broker cannot read; 320 (forced) is an operator's or a shutdown's.
fn blames_a_message(end: &CloseReason) -> bool {
    end.by == ClosedBy::Server && matches!(end.code, 501 | 502 | 503 | 505 | 540 | 541)
}

fn closed(code: u16, text: String, company: Company) -> Outcome {
    let reason = format!("{code} {text}");
    match (company, code) {
        // An internal error may be the message's or the broker's: the attempt counts, nobody is given up at once.
        (Company::Others, _) | (Company::Alone, 541) => Outcome::Unknown(Doubt::ChannelClosed(reason)),
        (Company::Alone, 404) => Outcome::Unroutable { code, text },
        (Company::Alone, 403 | 506) => refused(reason),
        // Some brokers answer a resource alarm with 406 (B22): the message is not at fault.
        (Company::Alone, 406) if speaks_of_resources(&text) => refused(reason),
        // This side closed the channel, or nobody gave a code.
        (Company::Alone, 0 | 200 | 320) => Outcome::Unknown(Doubt::ConnectionLost(reason)),
        (Company::Alone, _) => {
            Outcome::Rejected { reason: format!("the broker closed the channel over it: {reason}") }
        }
    }
}

fn speaks_of_resources(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["alarm", "disk", "memory"].iter().any(|word| text.contains(word))
}

fn refused(reason: String) -> Outcome {
    Outcome::Refused { reason, retry_after: None }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    const CHANNEL: ChannelId = ChannelId { incarnation: 7, number: 3 };

    fn alone(verdict: Verdict) -> Outcome {
        outcome(verdict, CHANNEL, None, Company::Alone)
    }

    fn channel_closed(code: u16, text: &str, in_flight: usize) -> Verdict {
        Verdict::ChannelClosed { code, text: text.into(), in_flight }
    }

    /// `B25` (amqp-rs/lapin#169): every answer of the broker has its own class.
    #[test]
    fn answers_of_the_broker_are_told_apart() {
        let tag = NonZeroU64::MIN;

        assert_eq!(
            alone(Verdict::Acked { tag }),
            Outcome::Confirmed(Proof::PublisherConfirm {
                channel: CoreChannelId { incarnation: 7, number: 3 },
                tag: DeliveryTag(tag),
            })
        );
        assert_eq!(
            alone(Verdict::Returned { code: 312, text: "NO_ROUTE".into() }),
            Outcome::Unroutable { code: 312, text: "NO_ROUTE".into() }
        );
        assert!(matches!(alone(Verdict::Nacked), Outcome::Refused { .. }));
        let invalid = NotSent::Invalid("routing_key is 300 bytes long, the limit is 255".into());
        assert!(
            matches!(alone(Verdict::NotSent { reason: invalid }), Outcome::Rejected { reason } if reason.contains("routing_key"))
        );
        let blocked = NotSent::Unavailable("blocked".into());
        assert!(matches!(alone(Verdict::NotSent { reason: blocked }), Outcome::Refused { .. }));
        for blocked in [true, false] {
            assert_eq!(alone(Verdict::TimedOut { blocked }), Outcome::Unknown(Doubt::ConfirmTimedOut));
        }
    }

    #[test]
    fn a_channel_closed_with_others_in_flight_makes_suspects_of_all() {
        for code in [403, 404, 406, 541] {
            let outcome = alone(channel_closed(code, "X", 2));

            assert_eq!(outcome, Outcome::Unknown(Doubt::ChannelClosed(format!("{code} X"))));
        }
    }

    #[test]
    fn a_lone_message_on_its_channel_is_judged_whoever_shares_the_connection() {
        let lone = outcome(channel_closed(404, "NOT_FOUND", 1), CHANNEL, None, Company::Others);

        assert!(matches!(lone, Outcome::Unroutable { code: 404, .. }), "{lone:?}");
    }

    #[test]
    fn a_channel_closed_over_a_lone_message_is_judged_by_its_code() {
        assert!(matches!(alone(channel_closed(404, "NOT_FOUND", 1)), Outcome::Unroutable { code: 404, .. }));
        assert!(matches!(alone(channel_closed(403, "ACCESS_REFUSED", 1)), Outcome::Refused { .. }));
        assert!(matches!(
            alone(channel_closed(406, "message size 9 is larger", 1)),
            Outcome::Rejected { .. }
        ));
        assert!(matches!(alone(channel_closed(501, "FRAME_ERROR", 1)), Outcome::Rejected { .. }));
        assert!(matches!(
            alone(channel_closed(541, "INTERNAL_ERROR", 1)),
            Outcome::Unknown(Doubt::ChannelClosed(_))
        ));
        assert!(matches!(alone(channel_closed(0, "gone", 1)), Outcome::Unknown(Doubt::ConnectionLost(_))));
    }

    /// `B22` (cloudamqp/lavinmq#2197): a resource alarm answered with 406 is no fault of the message.
    #[test]
    fn a_406_about_resources_is_refused_not_rejected() {
        let outcome = alone(channel_closed(406, "PRECONDITION_FAILED - low disk space", 1));

        assert!(matches!(outcome, Outcome::Refused { .. }), "{outcome:?}");
    }

    fn connection_lost(code: u16, by: ClosedBy, in_flight: usize, beside: Company) -> Outcome {
        let end = CloseReason { code, text: "X".into(), by };
        let verdict = Verdict::ConnectionLost { reason: end.to_string(), in_flight };
        outcome(verdict, CHANNEL, Some(ChannelError::ConnectionLost(end)), beside)
    }

    #[test]
    fn a_hard_error_over_a_message_makes_suspects_and_any_other_end_of_the_connection_does_not() {
        let suspects = connection_lost(501, ClosedBy::Server, 5, Company::Alone);
        let shared = connection_lost(501, ClosedBy::Server, 1, Company::Others);
        let guilty = connection_lost(501, ClosedBy::Server, 1, Company::Alone);
        let forced = connection_lost(320, ClosedBy::Server, 1, Company::Alone);
        let network = connection_lost(0, ClosedBy::Network, 1, Company::Alone);
        let own = connection_lost(501, ClosedBy::Client, 1, Company::Alone);

        assert!(matches!(suspects, Outcome::Unknown(Doubt::ChannelClosed(_))));
        assert!(matches!(shared, Outcome::Unknown(Doubt::ChannelClosed(_))));
        assert!(matches!(guilty, Outcome::Rejected { .. }));
        for lost in [forced, network, own] {
            assert!(matches!(lost, Outcome::Unknown(Doubt::ConnectionLost(_))), "{lost:?}");
        }
    }
}
