//! Runs one side of a scenario: a place, lives one after the other, the audit.

use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use super::audit::Found;
use super::life::{PLACE, Side};
use super::place::{Backend, Place};
use super::record::{Moment, Step, What};
use super::scenario::Window;
use super::site::Site;

/// A side that needs more lives does not get anywhere.
const LIVES_MAX: u32 = 8;
/// How long one life may take.
const LIFE_DEADLINE: Duration = Duration::from_mins(2);

/// What one side came to.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What the audit found.
    pub found: Found,
    /// What happened.
    pub moments: Vec<Moment>,
}

/// Runs one side.
pub async fn run(site: &Site, backend: Backend, id: Window, side: Side) -> anyhow::Result<Ran> {
    let place = site.create(backend, id).await?;
    let ran = lives(&place, id, side).await;
    let ran = match ran {
        Ok(moments) => id.audit().take(&place).await.map(|found| Ran { found, moments }),
        Err(error) => Err(error),
    };
    let removed = site.remove(&place).await;
    let ran = ran.with_context(|| format!("{} on {}, {} side", id.name(), backend.name(), side.name()))?;
    removed.context("cannot remove what the lab made")?;
    Ok(ran)
}

async fn lives(place: &Place, id: Window, side: Side) -> anyhow::Result<Vec<Moment>> {
    let started = Instant::now();
    let mut moments = Vec::new();
    for number in 1..=LIVES_MAX {
        if let Some(Moment { step: Step { actor, .. }, .. }) = moments.last().copied() {
            let step = Step { actor, what: What::Started, order: None };
            moments.push(Moment { at: started.elapsed(), step });
        }
        let (status, errors) = live(place, id, side, number, started, &mut moments).await?;
        let deaths = moments.iter().filter(|moment| moment.step.what == What::Died).count();
        if status.success() {
            let wanted = id.deaths(side);
            ensure!(deaths == wanted, "its processes died {deaths} times at the window, not {wanted}");
            return Ok(moments);
        }
        // A death at the window is announced; any other end is a failure of the lab.
        if moments.last().is_none_or(|moment| moment.step.what != What::Died) || status.code().is_some() {
            bail!("life {number} ended with {status}: {}", errors.trim());
        }
    }
    bail!("it died {LIVES_MAX} times")
}

async fn live(
    place: &Place,
    id: Window,
    side: Side,
    number: u32,
    started: Instant,
    moments: &mut Vec<Moment>,
) -> anyhow::Result<(ExitStatus, String)> {
    let mut child = spawn(place, id, side, number)?;
    let out = child.stdout.take().context("the life's output is a pipe")?;
    let mut errors = child.stderr.take().context("the life's errors are a pipe")?;
    let mut lines = BufReader::new(out).lines();
    let mut text = String::new();
    let listening = async {
        let telling = async {
            while let Some(line) = lines.next_line().await? {
                let step: Step =
                    serde_json::from_str(&line).context("a life told something that is no step")?;
                moments.push(Moment { at: started.elapsed(), step });
            }
            anyhow::Ok(())
        };
        let (told, read) = tokio::join!(telling, errors.read_to_string(&mut text));
        told?;
        read?;
        Ok(child.wait().await?)
    };
    let ended: anyhow::Result<ExitStatus> = tokio::time::timeout(LIFE_DEADLINE, listening)
        .await
        .with_context(|| format!("life {number} did not end within {LIFE_DEADLINE:?}"))?;
    Ok((ended?, text))
}

fn spawn(place: &Place, id: Window, side: Side, number: u32) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("cannot find this program's own path")?;
    Command::new(program)
        .args(["lab-life", "--scenario", id.name(), "--side", side.name(), "--number", &number.to_string()])
        .env(PLACE, serde_json::to_string(place)?)
        .env("CONSIGN_LOG", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("cannot start a process of the lab")
}
