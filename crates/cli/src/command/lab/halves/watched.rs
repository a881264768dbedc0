//! What stands around the shipped service: it tells the broker's questions and their answers.

use std::sync::Arc;

use consign_broker::rocketmq::{RocketMqHalves, RocketMqOrphan};
use consign_core::transaction::half::{EndLost, HalfError, HalfMessage, HalfMessages, Orphan, Question};
use consign_core::transaction::{End, Verdict};
use consign_rocketmq::Half;
use tokio::sync::watch;

use crate::command::lab::life::Life;
use crate::command::lab::record::{Actor, What};

/// The broker's side, watched.
pub struct WatchedHalves {
    /// The broker's side.
    pub inner: RocketMqHalves,
    /// Who tells.
    pub life: Life,
    /// What was said to the last question.
    pub answers: Arc<watch::Sender<Option<What>>>,
}

impl HalfMessages for WatchedHalves {
    type Half = Half;
    type Orphan = WatchedOrphan;

    async fn send_half(&self, half: &HalfMessage) -> Result<Half, HalfError> {
        self.inner.send_half(half).await
    }

    async fn end(&self, half: Half, end: End) -> Result<(), EndLost> {
        self.inner.end(half, end).await
    }

    async fn next_orphan(&self) -> Option<WatchedOrphan> {
        let inner = self.inner.next_orphan().await?;
        self.life.tell(Actor::CheckBack, What::Asked, None);
        Some(WatchedOrphan { inner, life: self.life.clone(), answers: Arc::clone(&self.answers) })
    }
}

/// A question, watched.
pub struct WatchedOrphan {
    inner: RocketMqOrphan,
    life: Life,
    answers: Arc<watch::Sender<Option<What>>>,
}

impl Orphan for WatchedOrphan {
    fn question(&self) -> Question {
        self.inner.question()
    }

    async fn answer(self, verdict: Verdict) -> Result<(), EndLost> {
        let what = match &verdict {
            Verdict::Commit(_) => What::AnsweredCommit,
            Verdict::Rollback(_) => What::AnsweredRollback,
            Verdict::Unknown(_) => What::LeftOpen,
        };
        self.inner.answer(verdict).await?;
        self.life.tell(Actor::CheckBack, what, None);
        self.answers.send_replace(Some(what));
        Ok(())
    }
}
