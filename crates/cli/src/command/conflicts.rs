//! `consign conflicts list|show|resolve`: keys that came again with other content, and what is decided about them.

use anyhow::{Context, bail};
use consign_store::record::{ConflictFilter, ConflictRecord};
use serde_json::{Map, Value, json};

use crate::actor::ActorArguments;
use crate::config::{Config, ConfigArguments};
use crate::exit::Exit;
use crate::output::{self, Decisions, Form, Payload, Table};
use crate::parts::{self, Store};

/// Of a compared content, a list shows at most this many characters.
const SHOWN: usize = 60;

/// What `consign conflicts` is asked to do.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  consign conflicts list --consumer points-award\n  consign conflicts show 3\n  \
                  consign conflicts resolve 3 --keep --note \"the shop sent a wrong amount\"\n\n\
                  A conflict is a business key that came again with other content. What was applied first stands until \
                  somebody decides otherwise."
)]
pub struct Arguments {
    #[command(flatten)]
    config: ConfigArguments,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List conflicts, the newest first.
    List(List),
    /// Show one conflict with both payloads.
    Show {
        /// The conflict's id.
        #[arg(value_name = "ID")]
        id: String,
        /// Print one JSON document.
        #[arg(long)]
        json: bool,
    },
    /// Decide about conflicts; each decision is written into the audit.
    #[command(after_help = RESOLVE_HELP)]
    Resolve(Resolve),
}

const RESOLVE_HELP: &str = "--keep: what was applied first stands. Nothing else happens; should the same content come \
                            again, the conflict is open again.\n\n\
                            --reprocess: the old marker is deleted, and the message that conflicted is processed by the \
                            running consumers as a NEW operation, in addition to the first one. The effect of the first \
                            operation is NOT undone: points it awarded stay awarded. Correct the business tables yourself \
                            when only one of the two may count.\n\n\
                            Examples:\n  consign conflicts resolve 3 4 --keep --actor mei --note \"typing error\"\n  \
                            consign conflicts resolve 5 --reprocess --note TICKET-812";

#[derive(Debug, clap::Args)]
struct List {
    /// Of this consumer.
    #[arg(long, value_name = "NAME")]
    consumer: Option<String>,
    /// Of this business key.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Resolved ones, too.
    #[arg(long)]
    all: bool,
    /// At most this many.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("decision").required(true))]
struct Resolve {
    /// The conflicts' ids.
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    /// What was applied first stands.
    #[arg(long, group = "decision")]
    keep: bool,
    /// Process the message that conflicted as a new operation; the effect of the first one stays.
    #[arg(long, group = "decision")]
    reprocess: bool,
    #[command(flatten)]
    actor: ActorArguments,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Lists, shows or resolves.
pub async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let config = arguments.config.load()?;
    match arguments.action {
        Action::List(list) => self::list(&config, &list).await,
        Action::Show { id, json } => show(&config, &id, Form::of(json)).await,
        Action::Resolve(resolve) => self::resolve(&config, &resolve).await,
    }
}

async fn list(config: &Config, list: &List) -> anyhow::Result<Exit> {
    let store = parts::open_store(config).await?;
    let filter = ConflictFilter {
        consumer: list.consumer.clone(),
        key: list.key.clone(),
        unresolved_only: !list.all,
        // One more than asked for tells whether there are more.
        limit: list.limit + 1,
    };
    let mut conflicts = store.conflicts(config, &filter).await?;
    let limit = usize::try_from(list.limit).unwrap_or(usize::MAX);
    let more = conflicts.len() > limit;
    conflicts.truncate(limit);
    if list.json {
        let conflicts: Vec<Value> = conflicts.iter().map(facts).map(Value::Object).collect();
        output::print_json(&json!({ "conflicts": conflicts, "more": more }))?;
        return Ok(Exit::Fine);
    }
    let mut table =
        Table::new(["ID", "CONSUMER", "KEY", "CAME", "APPLIED", "COUNT", "LAST SEEN", "RESOLUTION"]);
    for conflict in &conflicts {
        table.row([
            &conflict.id.to_string(),
            &conflict.consumer,
            &conflict.business_key,
            &output::shortened(&conflict.comparison, SHOWN),
            &output::shortened(&conflict.existing, SHOWN),
            &conflict.count.to_string(),
            &conflict.last_seen_at,
            conflict.resolution.as_deref().unwrap_or("-"),
        ]);
    }
    if table.is_empty() {
        eprintln!(
            "no conflicts{}",
            if list.all { "" } else { " wait for a decision; --all lists resolved ones, too" }
        );
    } else {
        output::print(&table)?;
    }
    if more {
        eprintln!("there are more than {}: raise --limit, or narrow with --consumer and --key", list.limit);
    }
    Ok(Exit::Fine)
}

async fn show(config: &Config, id: &str, form: Form) -> anyhow::Result<Exit> {
    let id = parse(id)?;
    let store = parts::open_store(config).await?;
    let conflict = store.conflict(config, id).await?.with_context(|| missing(id))?;
    match form {
        Form::Json => {
            let mut document = facts(&conflict);
            document.insert("reprocessable".into(), reprocessable(&conflict).into());
            document.insert("headers".into(), headers(&conflict));
            document.insert("payload".into(), came(&conflict).json());
            document.insert("existing_payload".into(), applied(&conflict).map_or(Value::Null, Payload::json));
            output::print_json(&json!({ "conflict": document }))?;
        }
        Form::Lines => output::print(page(&conflict))?,
    }
    Ok(Exit::Fine)
}

async fn resolve(config: &Config, resolve: &Resolve) -> anyhow::Result<Exit> {
    // Every id is read before anything is decided, so that a slip of the hand decides nothing.
    let ids: Vec<i64> = resolve.ids.iter().map(|id| parse(id)).collect::<anyhow::Result<_>>()?;
    let store = parts::open_store(config).await?;
    let audit = resolve.actor.audit();
    let mut decisions = Decisions::new(Form::of(resolve.json));
    for id in ids {
        let decided = if resolve.keep {
            store.keep_conflict(config, id, &audit).await
        } else {
            store.reprocess_conflict(config, id, &audit).await
        };
        match decided {
            Ok(true) if resolve.keep => decisions.done(id, "kept", "what was applied first stands")?,
            Ok(true) => decisions.done(
                id,
                "reprocessed",
                "the old marker is gone, and the running consumers process the message as a new operation; the effect of \
                 the first one stays",
            )?,
            Ok(false) => decisions.failed(id, &unresolvable(&store, config, id).await),
            Err(error) => decisions.failed(id, &error),
        }
    }
    Ok(decisions.end("resolved", Map::new())?)
}

/// Why no unresolved conflict has this id.
async fn unresolvable(store: &Store, config: &Config, id: i64) -> anyhow::Error {
    match store.conflict(config, id).await {
        Ok(Some(conflict)) => anyhow::anyhow!(
            "was {} at {} already: it opens again when the same content comes again",
            conflict.resolution.as_deref().unwrap_or("resolved"),
            conflict.resolved_at.as_deref().unwrap_or("some time")
        ),
        Ok(None) => anyhow::anyhow!(missing(id)),
        Err(error) => error,
    }
}

fn parse(id: &str) -> anyhow::Result<i64> {
    match id.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => bail!("{id:?} is no conflict's id: give the number that `consign conflicts list` shows"),
    }
}

fn missing(id: i64) -> String {
    format!("there is no conflict {id}: `consign conflicts list --all` shows them all")
}

/// What both lists and pages say, payloads left out.
fn facts(conflict: &ConflictRecord) -> Map<String, Value> {
    let facts = json!({
        "id": conflict.id,
        "consumer": conflict.consumer,
        "key": conflict.business_key,
        "event_id": conflict.event_id,
        "existing_event_id": conflict.existing_event_id,
        "comparison": conflict.comparison,
        "existing": conflict.existing,
        "message_id": conflict.message_id,
        "message_type": conflict.message_type,
        "source": conflict.source,
        "payload_bytes": conflict.payload_bytes,
        "existing_payload_bytes": conflict.existing_payload_bytes,
        "count": conflict.count,
        "first_seen_at": conflict.first_seen_at,
        "last_seen_at": conflict.last_seen_at,
        "resolution": conflict.resolution,
        "resolved_at": conflict.resolved_at,
    });
    match facts {
        Value::Object(facts) => facts,
        _ => Map::new(),
    }
}

/// A message of which only a part was kept is no message.
fn reprocessable(conflict: &ConflictRecord) -> bool {
    u64::try_from(conflict.payload.len()).is_ok_and(|kept| kept == conflict.payload_bytes)
}

fn headers(conflict: &ConflictRecord) -> Value {
    conflict
        .headers
        .iter()
        .map(|(name, text)| (name.clone(), Value::from(text.as_str())))
        .collect::<Map<_, _>>()
        .into()
}

fn came(conflict: &ConflictRecord) -> Payload<'_> {
    Payload::new(&conflict.payload, conflict.payload_bytes)
}

fn applied(conflict: &ConflictRecord) -> Option<Payload<'_>> {
    let kept = conflict.existing_payload.as_ref()?;
    let length = u64::try_from(kept.len()).unwrap_or(u64::MAX);
    Some(Payload::new(kept, conflict.existing_payload_bytes.unwrap_or(length)))
}

/// One conflict for people: what both have in common, then both side by side, then both payloads.
fn page(conflict: &ConflictRecord) -> String {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let mut common = Table::new(["CONFLICT", &conflict.id.to_string()]);
    let resolution = match (&conflict.resolution, &conflict.resolved_at) {
        (Some(resolution), Some(at)) => format!("{resolution} at {at}"),
        (Some(resolution), None) => resolution.clone(),
        (None, _) => "unresolved".into(),
    };
    let message = format!("{} ({})", or_none(&conflict.message_id), or_none(&conflict.message_type));
    common
        .row(["consumer", &conflict.consumer])
        .row(["key", &conflict.business_key])
        .row(["source", &conflict.source])
        .row(["message", &message])
        .row(["count", &conflict.count.to_string()])
        .row(["first seen", &conflict.first_seen_at])
        .row(["last seen", &conflict.last_seen_at])
        .row(["resolution", &resolution]);
    for (name, text) in &conflict.headers {
        common.row([&format!("header {name}"), text]);
    }
    let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".into(), |bytes| format!("{bytes} bytes"));
    let mut sides = Table::new(["", "CAME", "APPLIED"]);
    sides
        .row(["event id", &or_none(&conflict.event_id), &or_none(&conflict.existing_event_id)])
        .row(["comparison", &conflict.comparison, &conflict.existing])
        .row(["payload", &bytes(Some(conflict.payload_bytes)), &bytes(conflict.existing_payload_bytes)]);
    let existing = applied(conflict).map_or_else(
        || "    (not known: the applied event is in no outbox of this database)\n".into(),
        Payload::lines,
    );
    let hint = match (&conflict.resolution, reprocessable(conflict)) {
        (Some(_), _) => String::new(),
        (None, true) => format!(
            "\nDecide with `consign conflicts resolve {0} --keep`, or `consign conflicts resolve {0} --reprocess`.\n",
            conflict.id
        ),
        (None, false) => format!(
            "\nOnly a part of the message was kept, so it cannot be reprocessed here: decide with\n\
             `consign conflicts resolve {0} --keep` once it is dealt with.\n",
            conflict.id
        ),
    };
    format!(
        "{common}\n{sides}\npayload that came:\n{}\npayload that was applied:\n{existing}{hint}",
        came(conflict).lines()
    )
}
