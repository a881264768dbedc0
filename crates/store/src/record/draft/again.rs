//! Recorded messages that are to be processed after all.

use std::time::Duration;

use consign_core::delivery::Message;
use consign_core::ports::{ParkDelivery, ParkReason, StoreError};

use crate::record::draft::ParkedDraft;
use crate::record::{ConflictRecord, DeadDeliveryRecord};

impl ParkedDraft {
    /// The message of a conflict, due now and with all its attempts.
    ///
    /// # Errors
    /// The message was cut when it was recorded.
    pub(crate) fn reprocessed(conflict: &ConflictRecord) -> Result<Self, StoreError> {
        whole("conflict", conflict.id, &conflict.payload, conflict.payload_bytes)?;
        let message = Message {
            id: conflict.message_id.clone(),
            message_type: conflict.message_type.clone(),
            headers: conflict.headers.clone(),
            body: conflict.payload.clone(),
            source: conflict.source.clone(),
            ..Message::default()
        };
        let detail = format!("conflict {} is reprocessed", conflict.id);
        Self::again(&conflict.consumer, Some(&conflict.business_key), &message, &detail)
    }

    /// The message of a dead delivery, due now and with all its attempts.
    ///
    /// # Errors
    /// An earlier version of consign cut the message when it recorded it.
    pub(crate) fn requeued(dead: &DeadDeliveryRecord) -> Result<Self, StoreError> {
        whole("dead delivery", dead.id, &dead.payload, dead.payload_bytes)?;
        let message = Message {
            id: dead.message_id.clone(),
            message_type: dead.message_type.clone(),
            headers: dead.headers.clone(),
            body: dead.payload.clone(),
            source: dead.source.clone(),
            ..Message::default()
        };
        let detail = format!("dead delivery {} is tried again", dead.id);
        Self::again(&dead.consumer, dead.business_key.as_deref(), &message, &detail)
    }

    fn again(
        consumer: &str,
        business_key: Option<&str>,
        message: &Message,
        detail: &str,
    ) -> Result<Self, StoreError> {
        Self::new(&ParkDelivery {
            consumer,
            business_key,
            message,
            reason: ParkReason::Requeued,
            detail,
            attempts: 0,
            step: None,
            delay: Duration::ZERO,
        })
    }
}

/// Refuses to deliver a message again that is no longer whole.
fn whole(what: &str, id: i64, payload: &[u8], payload_bytes: u64) -> Result<(), StoreError> {
    if payload.len() as u64 == payload_bytes {
        return Ok(());
    }
    Err(StoreError::Data(format!(
        "{what} {id} holds {} of the message's {payload_bytes} bytes: send the message again from where it came",
        payload.len()
    )))
}
