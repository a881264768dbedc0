//! What must hold in every state, and what must happen in some.

use stateright::Property;

use super::state::{Broken, Event, Phase, State, Status, To};
use super::{Lease, Steps};

pub(super) fn all(model: &Lease) -> Vec<Property<Lease>> {
    let mut properties = vec![
        Property::always("SENT implies a copy at the broker", |model: &Lease, state: &State| {
            rows(model, state).all(|row| row.status != Status::Sent || row.copies > 0)
        }),
        Property::always("a settle changes only the row of its own claim", |_, state: &State| {
            state.broken != Some(Broken::ForeignSettle)
        }),
        Property::always("a status changes only as the state machine says", |_, state: &State| {
            state.broken != Some(Broken::Edge)
        }),
        Property::always("a publish begins only inside its lease", |_, state: &State| {
            state.broken != Some(Broken::OutsideLease)
        }),
        Property::always("DEAD only at the attempts cap or when rejected", |_, state: &State| {
            state.broken != Some(Broken::EarlyDeath)
        }),
        Property::always("attempts are claims less those given back", |model: &Lease, state: &State| {
            rows(model, state).all(|row| row.attempts == row.charged)
        }),
        Property::always("every further copy is explained by a fault", |model: &Lease, state: &State| {
            let (all, left) = (model.bounds.faults, state.left);
            let had = usize::from(all.sum() - left.sum());
            let crashes = usize::from(all.crashes - left.crashes);
            // A crash may concern every row the relay held.
            usize::from(state.excess) <= had + crashes * (model.bounds.hold - 1)
        }),
    ];
    if model.bounds.counts {
        properties.push(Property::always("no more copies than publishes", |model: &Lease, state: &State| {
            rows(model, state).all(|row| row.copies <= row.publishes)
        }));
    }
    properties.extend(situations());
    if model.bounds.steps == Steps::Fine {
        properties.extend(settling());
    }
    properties
}

fn situations() -> Vec<Property<Lease>> {
    vec![
        Property::sometimes("all events are SENT", |model: &Lease, state: &State| {
            rows(model, state).all(|row| row.status == Status::Sent)
        }),
        Property::sometimes("an event has several copies", |_, state: &State| state.excess > 0),
        Property::sometimes("bytes may still arrive after SENT", |model: &Lease, state: &State| {
            rows(model, state).any(|row| row.status == Status::Sent && row.late > 0)
        }),
        Property::sometimes(
            "a DEAD or discarded event may still be delivered",
            |model: &Lease, state: &State| {
                rows(model, state)
                    .any(|row| matches!(row.status, Status::Dead | Status::Discarded) && row.late > 0)
            },
        ),
        Property::sometimes("an event is DEAD", |model: &Lease, state: &State| {
            rows(model, state).any(|row| row.status == Status::Dead)
        }),
        Property::sometimes("a lease ends before its publish begins", |model: &Lease, state: &State| {
            attempts(model, state).any(|(_, phase, own)| phase == Phase::Held && !own)
        }),
        Property::sometimes(
            "a relay writes though its row is another one's",
            |model: &Lease, state: &State| {
                attempts(model, state)
                    .any(|(row, phase, own)| phase == Phase::Written && !own && row.status == Status::Sending)
            },
        ),
        Property::sometimes("a claimed row is in nobody's hands", |model: &Lease, state: &State| {
            rows(model, state)
                .any(|row| row.status == Status::Sending && row.places.iter().all(Option::is_none))
        }),
    ]
}

/// What is to be seen only where a settle is a step of its own.
fn settling() -> Vec<Property<Lease>> {
    vec![
        Property::sometimes("a settle is about to be fenced", |model: &Lease, state: &State| {
            attempts(model, state).any(|(row, phase, own)| {
                matches!(phase, Phase::Settling { repeat: false, .. }) && !own && row.status != Status::Sent
            })
        }),
        Property::sometimes("a settle comes after somebody else's SENT", |model: &Lease, state: &State| {
            attempts(model, state).any(|(row, phase, own)| {
                matches!(phase, Phase::Settling { repeat: false, .. }) && !own && row.status == Status::Sent
            })
        }),
        Property::sometimes("a settle without an answer had been applied", |model: &Lease, state: &State| {
            attempts(model, state).any(|(row, phase, _)| {
                phase == Phase::Settling { to: To::Sent, repeat: true } && row.status == Status::Sent
            })
        }),
    ]
}

fn rows<'a>(model: &Lease, state: &'a State) -> impl Iterator<Item = &'a Event> {
    state.events[..model.bounds.events].iter()
}

/// Every attempt with its row, and whether the row is still its own.
fn attempts<'a>(model: &Lease, state: &'a State) -> impl Iterator<Item = (&'a Event, Phase, bool)> {
    rows(model, state).flat_map(|row| {
        let own = move |claim: u8| row.status == Status::Sending && row.claim == claim;
        row.places.iter().flatten().map(move |attempt| (row, attempt.phase, own(attempt.claim)))
    })
}
