//! The operations on firmware files and sets.

use serde_json::json;

use super::super::error_code::ErrorCode;
use super::super::firmware::{NewFirmware, NewFirmwareSet, view};
use super::operation::{ApiOperation, delete, get, post};

/// A path with its tag.
type Place = (&'static str, &'static str);

/// The operations, in the order of the table of routes.
pub(super) fn firmware() -> Vec<ApiOperation> {
    const ALL: Place = ("firmware", "/api/v1/firmware");
    const ONE: Place = ("firmware", "/api/v1/firmware/{digest}");
    let text = || json!({ "type": "string" });
    vec![
        post(
            ALL,
            "addFirmware",
            "Make a firmware file of a blob in `firmware/VENDOR/COMPONENT` of the registry",
        )
        .of_registry()
        .body::<NewFirmware>()
        .returns::<view::FirmwareView>(200, "The same file is there already.")
        .returns::<view::FirmwareView>(201, "The file is added.")
        .errors(&[ErrorCode::ConflictFirmware, ErrorCode::RegistryReadOnly]),
        get(ALL, "listFirmware", "List firmware files by component, vendor and version")
            .of_registry()
            .query("vendor", "Only files of this vendor.", text())
            .query("model", "Only files for this model.", text())
            .query("component", "Only files for this component.", text())
            .returns::<view::FirmwarePage>(200, "The files."),
        of_firmware(get(ONE, "getFirmware", "Show a firmware file and the sets that hold it"))
            .returns::<view::FirmwareDetailView>(200, "The file."),
        of_firmware(delete(ONE, "removeFirmware", "Remove a firmware file that nothing holds"))
            .returns_nothing(204, "The file is removed; its bytes are collected later.")
            .errors(&[ErrorCode::ConflictFirmwareInUse, ErrorCode::RegistryReadOnly]),
    ]
    .into_iter()
    .chain(sets())
    .collect()
}

fn of_firmware(operation: ApiOperation) -> ApiOperation {
    let schema = json!({ "type": "string", "pattern": "^sha256:[0-9a-f]{64}$" });
    operation
        .of_registry()
        .path_parameter("digest", "The digest of the manifest of the file.", schema)
        .errors(&[ErrorCode::UnknownFirmware])
}

fn sets() -> Vec<ApiOperation> {
    const SETS: Place = ("firmware", "/api/v1/firmware-sets");
    const SET: Place = ("firmware", "/api/v1/firmware-sets/{name}");
    let named = |operation: ApiOperation| {
        operation
            .path_parameter("name", "The name of the set.", json!({ "type": "string" }))
            .errors(&[ErrorCode::UnknownFirmwareSet])
    };
    let text = || json!({ "type": "string" });
    vec![
        post(SETS, "createFirmwareSet", "Create a firmware set, which holds its files")
            .of_registry()
            .body::<NewFirmwareSet>()
            .returns::<view::FirmwareSetView>(201, "The set is created.")
            .errors(&[ErrorCode::ConflictFirmwareSet, ErrorCode::UnknownFirmware]),
        get(SETS, "listFirmwareSets", "List firmware sets by name")
            .returns::<view::FirmwareSetPage>(200, "All sets."),
        named(get(SET, "getFirmwareSet", "Show a firmware set with its files"))
            .returns::<view::FirmwareSetView>(200, "The set."),
        named(delete(SET, "deleteFirmwareSet", "Delete a firmware set; its files stay"))
            .returns_nothing(204, "The set is deleted."),
        get(
            ("firmware", "/api/v1/firmware-match"),
            "matchFirmwareSet",
            "Show the firmware set that fits a server",
        )
        .query("vendor", "The vendor of the server; required.", text())
        .query("model", "The model of the server; required.", text())
        .query("label", "Only sets with this label, KEY=VALUE; may be repeated.", text())
        .returns::<view::FirmwareSetView>(200, "The one set that fits.")
        .errors(&[ErrorCode::NoFirmwareSet, ErrorCode::SeveralFirmwareSets]),
    ]
}
