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
use crate::pace::{Pace, Rate, parse_rate};
use crate::parts::{self, Store};

mod decision;
mod elsewhere;
mod letter;
mod listing;

use decision::Verb;
use letter::{Letter, LetterId};
use listing::{Filters, Listing};

/// Of a reason, a list shows at most this many characters.
const REASON_SHOWN: usize = 100;

/// What `consign dead` is asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  consign dead list --reason \"rows\" --older-than 2h\n  consign dead show delivery:3\n  \
                  consign dead requeue delivery:3 outbox:e-17 --note \"the account exists now\"\n  \
                  consign dead requeue --type OrderCreated --rate 100\n  \
                  consign dead requeue --all --yes --rate 50/s\n  \
                  consign dead discard outbox:e-18 --note TICKET-812\n  \
                  consign dead discard --reason \"too large\" --older-than 30d --dry-run\n\n\
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
    Requeue(Choice),
    /// Give up for good: an event becomes DISCARDED, a delivery is noted as discarded; both stay in their tables.
    Discard(Choice),
}

/// What `consign dead requeue` and `consign dead discard` are asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Names or filters choose. --all chooses everything that its filters let through, and without --yes only \
                  tells how many. What died again meanwhile is not taken twice.\n\n\
                  Events go in small batches. Each batch is a transaction with its lines of consign_audit; Ctrl-C stops \
                  between two and tells how far it got."
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
struct Choice {
    /// The dead letters, as the list calls them.
    #[arg(value_name = "ID", conflicts_with = "all")]
    ids: Vec<String>,
    /// Everything that the filters let through.
    #[arg(long)]
    all: bool,
    /// With --all: do it, rather than tell how many.
    #[arg(long)]
    yes: bool,
    /// Tell how many, and do nothing.
    #[arg(long, conflicts_with_all = ["yes", "ids"])]
    dry_run: bool,
    #[command(flatten)]
    filters: Filters,
    /// At most this many.
    #[arg(long, value_name = "N", conflicts_with = "ids", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Not faster than this, such as 50/s or 300/m.
    #[arg(long, value_name = "N/s", value_parser = parse_rate)]
    rate: Option<Rate>,
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
        Action::Requeue(choice) => decide(&config, Verb::Requeue, choice).await,
        Action::Discard(choice) => decide(&config, Verb::Discard, choice).await,
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

impl Choice {
    /// A choice that cannot be meant.
    fn mistake(&self) -> Option<String> {
        if !self.ids.is_empty() {
            return self.filters.any().then(|| {
                "names and filters both choose: give names, or filters with or without --all".into()
            });
        }
        if !self.all && !self.filters.any() {
            return Some("say which: <ID>..., filters such as --type, or --all".into());
        }
        self.filters.mistake()
    }

    /// Whether it only asks how many.
    const fn asks(&self) -> bool {
        self.dry_run || self.all && !self.yes
    }
}

async fn decide(config: &Config, verb: Verb, choice: Choice) -> anyhow::Result<Exit> {
    if let Some(mistake) = choice.mistake() {
        eprintln!("error: {mistake}");
        return Ok(Exit::Usage);
    }
    let form = Form::of(choice.json);
    let ids = parse(config, &choice.ids)?;
    let store = parts::open_store(config).await?;
    let decider = decision::Decider { store: &store, config, audit: choice.actor.audit() };
    let limit = choice.limit.unwrap_or(u64::MAX);
    if choice.asks() {
        return decider.plan(verb, &choice.filters, limit, form).await;
    }
    let pace = Pace::new(choice.rate)?;
    if ids.is_empty() {
        decider.decide_all(verb, &choice.filters, limit, form, pace).await
    } else {
        decider.decide(verb, &ids, form, pace).await
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
