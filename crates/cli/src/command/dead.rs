//! `consign dead list|show|requeue|discard`: what was given up on either side, and what is decided about it.
//!
//! - `letter`: events and deliveries under one name. `listing`: filters, and both sides in one list.
//! - `elsewhere`: dead letters that went to a queue of the broker. `decision`: requeue and discard.

use anyhow::Context;
use serde_json::{Map, Value, json};

use crate::actor::ActorArguments;
use crate::config::{Config, ConfigArguments};
use crate::exit::Exit;
use crate::output::{self, Form, Table};
use crate::parts::{self, Store};

mod decision;
mod elsewhere;
mod letter;
mod listing;

use letter::{Letter, LetterId};
use listing::{Filters, Listing};

/// Of a reason, a list shows at most this many characters.
const REASON_SHOWN: usize = 100;

/// What `consign dead` is asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  consign dead list --reason \"rows\" --older-than 2h\n  consign dead show delivery:3\n  \
                  consign dead requeue delivery:3 outbox:e-17 --note \"the account exists now\"\n  \
                  consign dead requeue --all --consumer points-award --yes --rate 50/s\n  \
                  consign dead discard outbox:e-18 --note TICKET-812\n\n\
                  Both sides in one list: DEAD rows of the outbox (outbox:EVENT_ID, or outbox/NAME:EVENT_ID when there are \
                  several) and deliveries a consumer gave up (delivery:ID)."
)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List what waits for a decision, the oldest first.
    List {
        #[command(flatten)]
        filters: Filters,
        /// At most this many.
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Show one dead letter with its payload.
    Show {
        /// The dead letter, as the list calls it.
        #[arg(value_name = "ID")]
        id: String,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Try again: an event is published under the same event id, a delivery is processed by its consumer.
    Requeue(Requeue),
    /// Give up for good: an event becomes DISCARDED, a delivery is noted as discarded; both stay in their tables.
    Discard {
        /// The dead letters, as the list calls them.
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
        #[command(flatten)]
        actor: ActorArguments,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
}

/// What `consign dead requeue` is asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "With --all the filters of `consign dead list` choose; without --yes nothing happens, and the number is \
                  told. What died again meanwhile is not requeued twice. Ctrl-C stops between two.\n\n\
                  Every requeue is written into consign_audit in the same transaction."
)]
struct Requeue {
    /// The dead letters, as the list calls them.
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    ids: Vec<String>,
    /// Everything that the filters let through.
    #[arg(long)]
    all: bool,
    /// Do it, rather than tell how many.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    filters: Filters,
    /// At most this many; with --all.
    #[arg(long, value_name = "N", requires = "all", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Not faster than this, such as 50/s or 300/m.
    #[arg(long, value_name = "N/s", value_parser = decision::parse_rate)]
    rate: Option<decision::Rate>,
    #[command(flatten)]
    actor: ActorArguments,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Lists, shows, requeues or discards.
pub async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let config = arguments.config.load()?;
    match arguments.action {
        Action::List { filters, limit, json } => list(&config, &filters, limit, Form::of(json)).await,
        Action::Show { id, json } => show(&config, &id, Form::of(json)).await,
        Action::Requeue(requeue) => self::requeue(&config, requeue).await,
        Action::Discard { ids, actor, json } => {
            let ids = parse(&config, &ids)?;
            let store = parts::open_store(&config).await?;
            let decider = decision::Decider { store: &store, config: &config, audit: actor.audit() };
            decider.discard(&ids, Form::of(json)).await
        }
    }
}

async fn list(config: &Config, filters: &Filters, limit: u32, form: Form) -> anyhow::Result<Exit> {
    if let Some(mistake) = filters.mistake() {
        eprintln!("error: {mistake}");
        return Ok(Exit::Usage);
    }
    let store = parts::open_store(config).await?;
    let Listing { letters, notes, more } = filters.letters(&store, config, limit).await?;
    if form == Form::Json {
        let dead: Vec<Value> = letters.iter().map(|letter| letter.facts().into()).collect();
        output::print_json(&json!({ "dead": dead, "notes": notes, "more": more }))?;
    } else if letters.is_empty() {
        eprintln!("nothing dead waits for a decision");
    } else {
        output::print(table(&letters))?;
    }
    decision::tell(&notes);
    if more {
        eprintln!(
            "there are more than {limit}: raise --limit, or narrow with --type, --consumer or --reason"
        );
    }
    Ok(Exit::Fine)
}

fn table(letters: &[Letter]) -> Table {
    let mut table = Table::new(["ID", "TYPE", "FOR", "KEY", "ATTEMPTS", "AT", "REASON"]);
    for letter in letters {
        let attempts = letter.attempts().map_or_else(|| "-".into(), |attempts| attempts.to_string());
        let reason =
            letter.reason().map_or_else(|| "-".into(), |reason| output::shortened(reason, REASON_SHOWN));
        table.row([
            &letter.id().to_string(),
            letter.letter_type().unwrap_or("-"),
            letter.addressee().unwrap_or("-"),
            letter.key().unwrap_or("-"),
            &attempts,
            letter.at(),
            &reason,
        ]);
    }
    table
}

async fn show(config: &Config, id: &str, form: Form) -> anyhow::Result<Exit> {
    let id: LetterId = id.parse()?;
    let store = parts::open_store(config).await?;
    let letter = find(&store, config, &id).await?.with_context(|| missing(&id))?;
    match form {
        Form::Json => {
            let mut document = letter.facts();
            let headers =
                letter.headers().iter().map(|(name, text)| (name.clone(), Value::from(text.as_str())));
            document.insert("headers".into(), headers.collect::<Map<_, _>>().into());
            document.insert("payload".into(), letter.payload().map_or(Value::Null, output::Payload::json));
            output::print_json(&json!({ "dead": document }))?;
        }
        Form::Lines => output::print(page(&letter))?,
    }
    Ok(Exit::Fine)
}

/// One dead letter for people.
fn page(letter: &Letter) -> String {
    let mut table = Table::new(["DEAD LETTER", &letter.id().to_string()]);
    for (name, fact) in letter.facts().into_iter().filter(|(name, _)| name != "id") {
        let text = match fact {
            Value::Null => "-".into(),
            Value::String(text) => text,
            other => other.to_string(),
        };
        table.row([name.replace('_', " "), text]);
    }
    for (name, text) in letter.headers() {
        table.row([&format!("header {name}"), text]);
    }
    let payload = letter.payload().map_or_else(|| "    (none)\n".into(), output::Payload::lines);
    format!("{table}\npayload:\n{payload}")
}

async fn requeue(config: &Config, requeue: Requeue) -> anyhow::Result<Exit> {
    let mistake = if requeue.all {
        requeue.filters.mistake()
    } else {
        requeue
            .filters
            .any()
            .then(|| "filters choose with --all only: give ids, or --all with filters".to_owned())
    };
    if let Some(mistake) = mistake {
        eprintln!("error: {mistake}");
        return Ok(Exit::Usage);
    }
    let form = Form::of(requeue.json);
    let ids = parse(config, &requeue.ids)?;
    let store = parts::open_store(config).await?;
    let decider = decision::Decider { store: &store, config, audit: requeue.actor.audit() };
    let pace = decision::Pace::new(requeue.rate)?;
    if !requeue.all {
        return decider.requeue(&ids, form, pace).await;
    }
    let limit = requeue.limit.unwrap_or(u64::MAX);
    if requeue.yes {
        decider.requeue_all(&requeue.filters, limit, form, pace).await
    } else {
        decider.plan(&requeue.filters, limit, form).await
    }
}

/// Reads every id before anything is decided, so that a slip of the hand decides nothing.
fn parse(config: &Config, ids: &[String]) -> anyhow::Result<Vec<LetterId>> {
    let mut parsed = Vec::with_capacity(ids.len());
    for id in ids {
        let id: LetterId = id.parse()?;
        if let LetterId::Event { outbox, .. } = &id {
            letter::outbox(config, outbox.as_deref())?;
        }
        parsed.push(id);
    }
    Ok(parsed)
}

/// The letter of this name, whatever was decided about it before.
async fn find(store: &Store, config: &Config, id: &LetterId) -> anyhow::Result<Option<Letter>> {
    Ok(match id {
        LetterId::Event { outbox, event_id } => {
            let outbox = letter::outbox(config, outbox.as_deref())?;
            let event = store.dead_event(outbox, event_id).await?;
            event.map(|event| Letter::Event { id: id.clone(), outbox: outbox.name.clone(), event })
        }
        LetterId::Delivery(id) => store.dead_delivery(config, *id).await?.map(Letter::Delivery),
    })
}

fn missing(id: &LetterId) -> String {
    match id {
        LetterId::Event { .. } => {
            format!("there is no event for {id}: `consign dead list` shows what is dead")
        }
        LetterId::Delivery(_) => format!("there is no dead {id}: `consign dead list` shows what is dead"),
    }
}
