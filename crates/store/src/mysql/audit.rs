//! What people did, and who.

use sqlx::{MySqlConnection, query};

use crate::mysql::connection::UnitError;
use crate::mysql::failure::migrated;
use crate::mysql::statement::{AUDIT_INSERT, Text};
use crate::record::draft::AuditDraft;

/// Writes one line into the audit, in the unit that does what it tells.
pub(crate) async fn insert(connection: &mut MySqlConnection, draft: &AuditDraft) -> Result<(), UnitError> {
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
