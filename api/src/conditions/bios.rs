//! The preview of a change of BIOS settings: the plan, for what the BMC shows now. The BMC is read, and nothing is sent to it.

use super::super::Api;
use super::super::error::ApiError;
use super::super::servers::bios;
use model::Server;
use upkeep::UpkeepAction;
use upkeep::bios::{SettingItem, Wanted, planned};

/// The plan of an order, or why there is none; `None` for an order that sets nothing.
pub(super) async fn preview(
    api: &Api,
    server: &Server,
    action: &UpkeepAction,
) -> Result<Option<Result<Vec<SettingItem>, String>>, ApiError> {
    let UpkeepAction::Bios(order) = action else { return Ok(None) };
    let wanted =
        Wanted { attributes: !order.attributes.is_empty(), boot_order: !order.boot_order.is_empty() };
    let read = bios::read(api, server, wanted).await?;
    Ok(Some(match read {
        Ok(seen) => Ok(planned(order, &seen)),
        Err(why) => Err(format!("{}; {}", why.sentence, why.next_action)),
    }))
}
