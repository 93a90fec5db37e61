//! The operations on the backups that the controller makes.

use super::super::backups::{BackupPage, BackupStatus};
use super::super::error_code::ErrorCode;
use super::operation::{ApiOperation, get, post};
use serde_json::json;

/// The operations, in the order of the table of routes.
pub(super) fn backups() -> Vec<ApiOperation> {
    const BACKUPS: (&str, &str) = ("controller", "/api/v1/backups");
    vec![
        post(BACKUPS, "createBackup", "Start a backup to `BACKUP_TARGET`")
            .for_admins()
            .returns::<BackupStatus>(202, "A backup is being made; the status shows its end.")
            .errors(&[ErrorCode::NoBackupTarget, ErrorCode::ConflictBackup]),
        get(BACKUPS, "listBackups", "List the backups at `BACKUP_TARGET`, also those of other controllers")
            .for_admins()
            .returns::<BackupPage>(200, "The backups by name.")
            .errors(&[ErrorCode::NoBackupTarget, ErrorCode::BackupFailed]),
        post(
            ("controller", "/api/v1/backups/{name}/verify"),
            "verifyBackup",
            "Start to read all of a backup and to compare it with its digests",
        )
        .for_admins()
        .path_parameter("name", "The name of the backup.", json!({ "type": "string" }))
        .returns::<BackupStatus>(202, "A verification is under way; the status shows its result.")
        .errors(&[ErrorCode::NoBackupTarget, ErrorCode::UnknownBackup, ErrorCode::ConflictBackup]),
        get(
            ("controller", "/api/v1/backup-status"),
            "getBackupStatus",
            "Show the age of the last backup, when the next one is due, and what is under way",
        )
        .for_admins()
        .returns::<BackupStatus>(200, "What is known without a look at the target.")
        .errors(&[ErrorCode::NoBackupTarget]),
    ]
}
