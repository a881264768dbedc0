//! The tasks per proxy: the telemetry stream with this client's settings, and heartbeats.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::Shared;
use crate::error::CallError;
use crate::generated::messages::telemetry_command::Command;
use crate::generated::messages::{
    HeartbeatRequest, RecoverOrphanedTransactionCommand, RetryPolicy, Settings, TelemetryCommand,
};
use crate::group_settings::GroupSettings;
use crate::identity::Identity;
use crate::message::duration;
use crate::status::check;
use crate::transport::Link;

/// Time between heartbeats; proxies forget a client after two minutes without one.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(10);
/// How often settings are sent again on a stream that lives: a proxy that lost them may never say so
/// (apache/rocketmq-clients#1137).
const SETTINGS_EVERY: Duration = Duration::from_mins(5);
/// First and longest pause before a stream is opened again.
const BACKOFF: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A stream that lived this long was a good one: the next pause is the first again.
const GOOD_AFTER: Duration = Duration::from_secs(10);

/// A check of a half message, and the proxy that asked.
pub(crate) struct Recovered {
    pub(crate) command: RecoverOrphanedTransactionCommand,
    pub(crate) link: Arc<Link>,
}

/// Keeps this client known to one proxy, for as long as it is polled.
pub(super) async fn attend(shared: Arc<Shared>, link: Arc<Link>) {
    let known = Notify::new();
    tokio::join!(keep_stream(&shared, &link, &known), beat(&shared, &link, &known));
}

/// Opens the stream again whenever it ends (apache/rocketmq-clients#903).
async fn keep_stream(shared: &Shared, link: &Arc<Link>, known: &Notify) {
    let mut pause = BACKOFF;
    loop {
        let opened = Instant::now();
        let ended = stream(shared, link, known).await;
        let reason = match ended {
            Ok(()) => format!("{}: the proxy ended the telemetry stream", link.address()),
            Err(error) => error.to_string(),
        };
        tracing::debug!(%reason, "telemetry stream ended");
        shared.standing.lost(link.address(), &reason);
        if opened.elapsed() >= GOOD_AFTER {
            pause = BACKOFF;
        }
        sleep(pause).await;
        pause = (pause * 2).min(BACKOFF_MAX);
    }
}

/// One stream from its opening to its end.
async fn stream(shared: &Shared, link: &Arc<Link>, known: &Notify) -> Result<(), CallError> {
    let deadline = Instant::now() + shared.options.connection_timeout + shared.options.request_timeout;
    let (commands, outgoing) = mpsc::channel(4);
    // The server answers the stream's headers only after the first command.
    let first = commands.try_send(settings(shared));
    first.map_err(|_| CallError::not_sent("the settings do not fit in the stream"))?;
    let mut incoming = link.telemetry(ReceiverStream::new(outgoing), deadline).await?;
    let answer = timeout_at(deadline, next(&mut incoming)).await;
    let answer =
        answer.unwrap_or_else(|_| Err(CallError::unknown("the settings were not answered in time")))?;
    let Some(answer) = answer else { return Ok(()) };
    handle(shared, link, answer)?;
    shared.standing.known(link.address());
    known.notify_one();
    let mut repeat = interval(SETTINGS_EVERY);
    repeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    repeat.reset();
    loop {
        tokio::select! {
            command = next(&mut incoming) => match command? {
                Some(command) => handle(shared, link, command)?,
                None => return Ok(()),
            },
            () = async { tokio::select! { () = link.settings_wanted() => {}, _ = repeat.tick() => {} } } => {
                // A queue that is full holds settings that are not sent yet.
                drop(commands.try_send(settings(shared)));
            }
        }
    }
}

async fn next(incoming: &mut Streaming<TelemetryCommand>) -> Result<Option<TelemetryCommand>, CallError> {
    let next = incoming.message().await;
    next.map_err(|status| CallError::unknown(format!("{} {}", status.code(), status.message())))
}

/// What the proxy wants. Never waits: the stream and the heartbeats go on.
fn handle(shared: &Shared, link: &Arc<Link>, command: TelemetryCommand) -> Result<(), CallError> {
    if command.status.is_some() {
        check(command.status.as_ref())?;
    }
    match command.command {
        Some(Command::Settings(settings)) => {
            shared.told.send_replace(Some(GroupSettings::new(&settings)));
        }
        Some(Command::RecoverOrphanedTransactionCommand(command)) => {
            if let Some(orphans) = &shared.role.orphans {
                let recovered = Recovered { command, link: link.clone() };
                if orphans.try_send(recovered).is_err() {
                    // The broker asks again in its next round.
                    tracing::warn!("a check of a half message is dropped, too many wait for an answer");
                }
            }
        }
        // The commands for diagnosis are not for this client, and a newer protocol may have more of them.
        Some(_) | None => {}
    }
    Ok(())
}

async fn beat(shared: &Shared, link: &Link, known: &Notify) {
    let mut ticks = interval(HEARTBEAT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // Before the settings are taken the proxy does not know whose heartbeat it is.
    ticks.reset();
    loop {
        tokio::select! { () = known.notified() => ticks.reset(), _ = ticks.tick() => {} }
        let request = HeartbeatRequest {
            group: shared.role.group.clone(),
            client_type: shared.role.client_type.into(),
        };
        let deadline = Instant::now() + shared.options.request_timeout;
        let answered =
            link.call(request, deadline, |mut stub, request| async move { stub.heartbeat(request).await });
        match answered.await.and_then(|response| check(response.status.as_ref())) {
            Ok(()) => {}
            // UNRECOGNIZED_CLIENT_TYPE says that the settings are lost; a proxy that failed may have lost them, too.
            Err(CallError::Answered { code, message }) => {
                tracing::debug!(%code, message, "heartbeat was not taken, settings are sent again");
                link.want_settings();
            }
            Err(error) => tracing::debug!(%error, "heartbeat failed"),
        }
    }
}

/// This client's settings.
fn settings(shared: &Shared) -> TelemetryCommand {
    let settings = Settings {
        client_type: Some(shared.role.client_type.into()),
        access_point: Some(shared.access_point()),
        // Retries belong to the caller: one attempt, no more.
        backoff_policy: Some(RetryPolicy { max_attempts: 1, strategy: None }),
        request_timeout: Some(duration(shared.options.request_timeout)),
        pub_sub: Some(shared.role.pub_sub.clone()),
        user_agent: Some(Identity::user_agent()),
        ..Settings::default()
    };
    TelemetryCommand { status: None, command: Some(Command::Settings(settings)) }
}
