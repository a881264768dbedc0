//! What people did, and who.

use sqlx::{SqliteConnection, query};

use crate::record::draft::AuditDraft;
use crate::sqlite::connection::UnitError;
use crate::sqlite::failure::migrated;
use crate::sqlite::statement::{AUDIT_INSERT, Text};

/// Writes one line into the audit, in the unit that does what it tells.
pub(crate) async fn insert(connection: &mut SqliteConnection, draft: &AuditDraft) -> Result<(), UnitError> {
    query(Text::own(AUDIT_INSERT).sql())
        .bind(&draft.actor)
        .bind(draft.action)
        .bind(&draft.subject)
        .bind(&draft.detail)
        .execute(connection)
        .await
        .map_err(migrated)?;
    Ok(())
}

/// Writes lines into the audit, in the unit that does what they tell.
pub(crate) async fn insert_all(
    connection: &mut SqliteConnection,
    drafts: &[AuditDraft],
) -> Result<(), UnitError> {
    for draft in drafts {
        insert(connection, draft).await?;
    }
    Ok(())
}
