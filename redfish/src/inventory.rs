//! Inventory of a BMC: update service, firmware, the account in use and its limits.
//! Every read is optional: what a BMC does not show is `None`.
//!
//! Specification: DSP0268 UpdateService, SoftwareInventory, AccountService, ManagerAccount, SessionService.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bmc::Bmc;
use crate::endpoint::SERVICE_ROOT;
use crate::error::{ErrorKind, Operation, RedfishError};
use crate::json::{self, Resource};
use crate::version::FirmwareVersion;

const OPERATION: Operation = Operation::Inventory;
/// Maximum number of firmware entries that are read.
const MAX_FIRMWARE: usize = 16;
/// Maximum number of accounts searched for the account in use.
const MAX_ACCOUNTS: usize = 16;

/// The update service.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct UpdateService {
    /// Path of the service.
    pub uri: String,
    /// `ServiceEnabled`.
    pub enabled: Option<bool>,
    /// Whether the BMC offers `SimpleUpdate`.
    pub simple_update: bool,
    /// Protocols `SimpleUpdate` lists.
    pub protocols: Vec<String>,
    /// `MultipartHttpPushUri`.
    pub multipart_push: Option<String>,
    /// `HttpPushUri`.
    pub push: Option<String>,
    /// `MaxImageSizeBytes`.
    pub max_image_bytes: Option<u64>,
    /// Number of entries in the firmware inventory.
    pub firmware_count: usize,
    /// The first entries of the firmware inventory.
    pub firmware: Vec<Firmware>,
}

/// One entry of the firmware inventory.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Firmware {
    /// The `Id` of the member.
    pub id: String,
    /// The `Name` of the member.
    pub name: Option<String>,
    /// The `Version` of the member.
    pub version: Option<FirmwareVersion>,
    /// The `Updateable` of the member.
    pub updateable: Option<bool>,
}

/// The account in use.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Account {
    /// Whether the account is enabled, `Enabled`.
    pub enabled: Option<bool>,
    /// Whether the account is locked, `Locked`.
    pub locked: Option<bool>,
    /// `PasswordChangeRequired`.
    pub password_change_required: Option<bool>,
    /// The role of the account, `RoleId`.
    pub role: Option<String>,
    /// `AccountLockoutThreshold` of the service.
    pub lockout_threshold: Option<u64>,
    /// `SessionTimeout` of the session service.
    pub session_timeout: Option<u64>,
}

impl Bmc {
    /// Reads the update service and the first entries of the firmware inventory; `None` when the BMC has no update service.
    ///
    /// # Errors
    ///
    /// When the BMC does not respond or rejects the credentials.
    pub async fn update_service(&self) -> Result<Option<UpdateService>, RedfishError> {
        let Some(service) = self.of_root("UpdateService").await? else { return Ok(None) };
        let fields = &service.fields;
        let simple = json::action(fields, "#UpdateService.SimpleUpdate");
        let mut found = UpdateService {
            uri: service.path.clone(),
            enabled: json::flag(fields, "ServiceEnabled"),
            simple_update: simple.is_some(),
            protocols: simple
                .map(|action| json::texts(action, "TransferProtocol@Redfish.AllowableValues"))
                .unwrap_or_default(),
            multipart_push: json::word(fields, "MultipartHttpPushUri"),
            push: json::word(fields, "HttpPushUri"),
            max_image_bytes: fields.get("MaxImageSizeBytes").and_then(Value::as_u64),
            ..UpdateService::default()
        };
        let Some(inventory) = json::link(fields, "FirmwareInventory") else { return Ok(Some(found)) };
        let Some(inventory) = self.optional(&inventory).await? else { return Ok(Some(found)) };
        let members = json::links(&inventory.fields, "Members");
        found.firmware_count = members.len();
        for member in members.iter().take(MAX_FIRMWARE) {
            let Some(item) = self.optional(member).await? else { continue };
            found.firmware.push(Firmware {
                id: json::word(&item.fields, "Id").unwrap_or_default(),
                name: json::word(&item.fields, "Name"),
                version: json::word(&item.fields, "Version").map(FirmwareVersion::from),
                updateable: json::flag(&item.fields, "Updateable"),
            });
        }
        Ok(Some(found))
    }

    /// Reads the account in use; `None` when the BMC shows nothing about it.
    ///
    /// # Errors
    ///
    /// When the BMC does not respond or rejects the credentials.
    pub async fn account(&self) -> Result<Option<Account>, RedfishError> {
        let session_timeout = match self.of_root("SessionService").await? {
            Some(service) => service.fields.get("SessionTimeout").and_then(Value::as_u64),
            None => None,
        };
        let Some(service) = self.of_root("AccountService").await? else {
            let known = session_timeout.is_some();
            return Ok(known.then(|| Account { session_timeout, ..Account::default() }));
        };
        let lockout_threshold = service.fields.get("AccountLockoutThreshold").and_then(Value::as_u64);
        let mut account = Account { lockout_threshold, session_timeout, ..Account::default() };
        let Some(accounts) = json::link(&service.fields, "Accounts") else { return Ok(Some(account)) };
        let Some(accounts) = self.optional(&accounts).await? else { return Ok(Some(account)) };
        for member in json::links(&accounts.fields, "Members").iter().take(MAX_ACCOUNTS) {
            let Some(member) = self.optional(member).await? else { continue };
            if json::word(&member.fields, "UserName").as_ref() == Some(&self.core.credentials.username) {
                account.enabled = json::flag(&member.fields, "Enabled");
                account.locked = json::flag(&member.fields, "Locked");
                account.password_change_required = json::flag(&member.fields, "PasswordChangeRequired");
                account.role = json::word(&member.fields, "RoleId");
                break;
            }
        }
        Ok(Some(account))
    }

    async fn of_root(&self, name: &str) -> Result<Option<Resource>, RedfishError> {
        let root = self.core.read(OPERATION, SERVICE_ROOT).await?;
        match json::link(&root.fields, name) {
            Some(path) => self.optional(&path).await,
            None => Ok(None),
        }
    }

    /// Reads a resource that may be missing, invalid or forbidden for this account; `None` then.
    async fn optional(&self, path: &str) -> Result<Option<Resource>, RedfishError> {
        match self.core.read(OPERATION, path).await {
            Ok(resource) => Ok(Some(resource)),
            Err(error) => match &error.kind {
                ErrorKind::NotFound { .. }
                | ErrorKind::NotSupported { .. }
                | ErrorKind::Refused { .. }
                | ErrorKind::License { .. }
                | ErrorKind::Server { .. }
                | ErrorKind::BadAnswer { .. } => Ok(None),
                ErrorKind::Unauthorized { denial, .. }
                    if *denial == crate::error::DenialReason::Privilege =>
                {
                    Ok(None)
                }
                _ => Err(error),
            },
        }
    }
}
