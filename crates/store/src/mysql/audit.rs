//! What people did, and who.

use sqlx::{MySqlConnection, query};

use crate::mysql::connection::UnitError;
use crate::mysql::failure::migrated;
use crate::mysql::packet;
use crate::mysql::statement::{AUDIT_INSERT, QUOTE, RowsText};
use crate::record::draft::AuditDraft;
use crate::statement::Rendering;

/// Writes one line into the audit, in the unit that does what it tells.
pub(crate) async fn insert(connection: &mut MySqlConnection, draft: &AuditDraft) -> Result<(), UnitError> {
    insert_all(connection, std::slice::from_ref(draft)).await
}

/// Writes lines into the audit, in the unit that does what they tell.
pub(crate) async fn insert_all(
    connection: &mut MySqlConnection,
    drafts: &[AuditDraft],
) -> Result<(), UnitError> {
    let texts = RowsText::rendered(&Rendering::new(QUOTE), AUDIT_INSERT);
    let weigh = |draft: &AuditDraft| {
        let detail = draft.detail.as_deref().map_or(0, str::len);
        packet::weight(4, draft.actor.len() + draft.action.len() + draft.subject.len() + detail)
    };
    for drafts in packet::pieces(drafts, |rest| packet::rows(rest, weigh)) {
        let mut insert = query(texts.sized(drafts.len()).sql());
        for draft in drafts {
            insert = insert.bind(&draft.actor).bind(draft.action).bind(&draft.subject).bind(&draft.detail);
        }
        insert.execute(&mut *connection).await.map_err(migrated)?;
    }
    Ok(())
}
