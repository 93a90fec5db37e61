//! The error response for a BMC that cannot be read.

use super::super::error::ApiError;
use super::super::error_code::ErrorCode;
use bmc::probe::BmcProblem;

/// 502 for a problem of the BMC or the network; 422 for a problem of the server's record.
pub(super) fn error(why: &BmcProblem) -> ApiError {
    let code = match why.code.as_str() {
        "record" | "config" => ErrorCode::ServerRecord,
        _ => ErrorCode::Bmc,
    };
    ApiError::new(code, format!("{}; {}", why.sentence, why.next_action))
}
