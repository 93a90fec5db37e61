//! Reads the typed fields from a JSON value that passed the schema.
//!
//! The schema has checked the shapes. This module checks what a schema cannot express: lengths in bytes, base64, sizes that
//! do not fit into 64 bits. An older schema may allow values that the current types do not have, so every read can fail
//! with an error of its field.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::error::{FieldError, child, display};
use super::network;
use super::options::{After, Delivery, DiskHints, EraseMode};
use super::partition::{self, FsFormat, Partition, PartitionSize, PartitionType};
use super::storage::{
    Array, ArrayContent, ArrayLevel, FileSystem, LogicalVolume, MoreDisk, Storage, VolumeGroup,
};
use super::{MediaLabel, Network, Payload, Recipe, TaskTarget};

/// Reads every field; `schema` holds the limits.
pub(super) fn recipe(
    raw: &str,
    schema_id: &str,
    schema: &Value,
    value: &Value,
) -> Result<Recipe, Vec<FieldError>> {
    let Some(object) = value.as_object() else {
        return Err(vec![FieldError::new("", "type", "The recipe must be a JSON object.")]);
    };
    let mut reader = FieldReader { object, at: String::new(), errors: Vec::new() };
    let task_target = reader.required("task_target", TaskTarget::parse);
    let partition_layout = reader.partitions();
    let storage = reader.storage();
    let encoding = reader.text("user_data_encoding");
    let mut payload = |name: &str| reader.payload(name, schema);
    let user_data = payload("user_data");
    let network_config = payload("network_config").map(Payload::new);
    let vendor_data = payload("vendor_data").map(Payload::new);
    let unattend_xml = payload("unattend_xml").map(Payload::new);
    let ks_cfg = payload("ks_cfg").map(Payload::new);
    let user_data = match (user_data, encoding) {
        (Some(text), Some("base64")) => reader.decoded("user_data", text),
        (text, _) => text.map(Payload::new),
    };
    let media_label = reader.optional("media_label", MediaLabel::parse);
    let target_disk = reader.text("target_disk").map(str::to_owned);
    let oci_url = reader.text("oci_url").map(str::to_owned);
    let firmware_url = reader.text("firmware_url").map(str::to_owned);
    let after = reader.optional("after", After::parse).unwrap_or_default();
    let delivery = reader.optional("delivery", Delivery::parse).unwrap_or_default();
    let erase_mode = reader.optional("erase_mode", EraseMode::parse).unwrap_or_default();
    let disk_hints = reader.disk_hints();
    let network = reader.network();
    let ssh_authorized_keys = reader.texts("ssh_authorized_keys");
    let session_minutes = reader.whole("session_minutes");
    match (task_target, reader.errors) {
        (Some(task_target), errors) if errors.is_empty() => Ok(Recipe {
            raw: raw.to_owned(),
            schema_id: schema_id.to_owned(),
            task_target,
            after,
            delivery,
            target_disk,
            disk_hints,
            oci_url,
            firmware_url,
            partition_layout,
            storage,
            erase_mode,
            network,
            ssh_authorized_keys,
            session_minutes,
            user_data,
            network_config,
            vendor_data,
            unattend_xml,
            ks_cfg,
            media_label,
        }),
        (_, errors) => Err(errors),
    }
}

/// Reads the members of one object; `at` is the pointer to the object.
struct FieldReader<'a> {
    object: &'a Map<String, Value>,
    at: String,
    errors: Vec<FieldError>,
}

impl<'a> FieldReader<'a> {
    fn fail(&mut self, name: &str, code: &str, what: &str) {
        let path = child(&self.at, name);
        self.errors.push(FieldError::new(&path, code, format!("{} {what}", display(&path))));
    }

    fn text(&mut self, name: &str) -> Option<&'a str> {
        let value = self.object.get(name)?;
        let text = value.as_str();
        if text.is_none() {
            self.fail(name, "type", "must be a string.");
        }
        text
    }

    /// Reads a required field with a value that this controller knows.
    fn required<T>(&mut self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        if !self.object.contains_key(name) {
            self.fail(name, "required", "is missing.");
        }
        self.optional(name, parse)
    }

    fn optional<T>(&mut self, name: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let parsed = parse(self.text(name)?);
        if parsed.is_none() {
            self.fail(
                name,
                "enum",
                "has a value this controller does not know; see the current recipe schema.",
            );
        }
        parsed
    }

    /// Reads a payload text and checks its limit in bytes.
    fn payload(&mut self, name: &str, schema: &Value) -> Option<&'a str> {
        let text = self.text(name)?;
        let limit = schema.pointer(&format!("/properties/{name}/maxLength")).and_then(Value::as_u64);
        match limit {
            Some(limit) if text.len() as u64 > limit => {
                let what = format!("is {} bytes long in UTF-8, the limit is {limit} bytes.", text.len());
                self.fail(name, "maxBytes", &what);
                None
            }
            _ => Some(text),
        }
    }

    /// Decodes base64: the standard alphabet of RFC 4648 section 4 with padding; white space is skipped. Missing padding is
    /// refused because it is a sign of a truncated text.
    fn decoded(&mut self, name: &str, text: &str) -> Option<Payload> {
        let packed: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        match STANDARD.decode(&packed) {
            Ok(bytes) => Some(Payload(bytes)),
            Err(error) => {
                let why = match error {
                    // The message does not show the letter because it is part of the payload.
                    base64::DecodeError::InvalidByte(at, b'-' | b'_') => {
                        format!(
                            "letter {} is from the URL-safe alphabet; the standard alphabet is required.",
                            at + 1
                        )
                    }
                    base64::DecodeError::InvalidByte(at, _) => {
                        format!("letter {} is not in the alphabet.", at + 1)
                    }
                    base64::DecodeError::InvalidLength(length) => {
                        format!("{length} letters are not a whole number of bytes: is the text truncated?")
                    }
                    base64::DecodeError::InvalidLastSymbol(at, _) => {
                        format!("the last letter, {}, has bits that are not zero.", at + 1)
                    }
                    base64::DecodeError::InvalidPadding => {
                        "the padding is missing: is the text truncated?".to_owned()
                    }
                };
                let what = format!(
                    "is not base64: {why} (White space is not counted.) Encode it again, or remove \
                     user_data_encoding to pass it on verbatim."
                );
                self.fail(name, "base64", &what);
                None
            }
        }
    }

    fn texts(&mut self, name: &str) -> Vec<String> {
        let Some(value) = self.object.get(name) else { return Vec::new() };
        let texts: Option<Vec<String>> = value
            .as_array()
            .and_then(|items| items.iter().map(|item| item.as_str().map(str::to_owned)).collect());
        if texts.is_none() {
            self.fail(name, "type", "must be an array of strings.");
        }
        texts.unwrap_or_default()
    }

    /// Reads a whole number. One such as 1.5e1 is whole for the schema and not for this reader.
    fn whole(&mut self, name: &str) -> Option<u32> {
        let value = self.object.get(name)?;
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        if number.is_none() {
            self.fail(name, "type", "must be a whole number, written without a fraction and an exponent.");
        }
        number
    }

    /// Reads the hints. The schema names them and their types; a number such as 1.5e3 is whole for it and not for this reader.
    fn disk_hints(&mut self) -> Option<DiskHints> {
        let value = self.object.get("disk_hints")?;
        for name in ["min_bytes", "max_bytes"] {
            if value.get(name).is_some_and(|number| number.as_u64().is_none()) {
                let what = "must be a whole number below 2^64, written without a fraction and an exponent.";
                let path = child(&child(&self.at, "disk_hints"), name);
                self.errors.push(FieldError::new(&path, "type", format!("{} {what}", display(&path))));
                return None;
            }
        }
        let hints = serde_json::from_value(value.clone());
        if hints.is_err() {
            self.fail("disk_hints", "type", "has a hint this controller does not know; see the schema.");
        }
        hints.ok()
    }

    fn network(&mut self) -> Option<Network> {
        let read = network::read(&child(&self.at, "network"), self.object.get("network")?);
        read.map_err(|errors| self.errors.extend(errors)).ok()
    }

    fn partitions(&mut self) -> Vec<Partition> {
        self.objects("partition_layout", |part| part.partition())
    }

    /// Reads the objects of an array, each with its own place in the recipe.
    fn objects<T>(&mut self, name: &str, read: impl Fn(&mut FieldReader<'_>) -> Option<T>) -> Vec<T> {
        let Some(value) = self.object.get(name) else { return Vec::new() };
        let Some(items) = value.as_array() else {
            self.fail(name, "type", "must be an array.");
            return Vec::new();
        };
        let mut found = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let at = format!("{}/{name}/{index}", self.at);
            let Some(object) = item.as_object() else {
                let message = format!("{} must be an object.", display(&at));
                self.errors.push(FieldError::new(&at, "type", message));
                continue;
            };
            let mut reader = FieldReader { object, at, errors: Vec::new() };
            found.extend(read(&mut reader));
            self.errors.append(&mut reader.errors);
        }
        found
    }

    fn storage(&mut self) -> Storage {
        Storage {
            more_disks: self.objects("more_disks", |disk| {
                Some(MoreDisk {
                    target_disk: disk.text("target_disk").map(str::to_owned),
                    disk_hints: disk.disk_hints(),
                    partition_layout: disk.partitions(),
                })
            }),
            arrays: self.objects("arrays", |array| {
                let name = array.required("name", |name| Some(name.to_owned()));
                let level = array.level();
                let member_of = array.text("member_of").map(str::to_owned);
                let file_system = array.file_system()?;
                let is_empty = file_system.format == FsFormat::Raw
                    && file_system.label.is_none()
                    && file_system.mount.is_none();
                let content = match member_of {
                    Some(_) if !is_empty => {
                        array.fail("member_of", "storage", "needs an array without format, label and mount.");
                        return None;
                    }
                    Some(group) => ArrayContent::MemberOf(group),
                    None => ArrayContent::FileSystem(file_system),
                };
                Some(Array { name: name?, level: level?, content })
            }),
            volume_groups: self.objects("volume_groups", |group| {
                let name = group.required("name", |name| Some(name.to_owned()));
                let volumes = group.objects("volumes", |volume| {
                    let name = volume.required("name", |name| Some(name.to_owned()));
                    let size = volume.parsed("size", "size_range", PartitionSize::parse);
                    let file_system = volume.file_system();
                    Some(LogicalVolume { name: name?, size: size?, file_system: file_system? })
                });
                Some(VolumeGroup { name: name?, volumes })
            }),
        }
    }

    fn level(&mut self) -> Option<ArrayLevel> {
        let level = self.object.get("level").and_then(Value::as_u64).and_then(ArrayLevel::of);
        if level.is_none() {
            self.fail("level", "enum", "is no level this controller knows: 0, 1, 10, 5 or 6.");
        }
        level
    }

    fn file_system(&mut self) -> Option<FileSystem> {
        let format = match self.object.get("format") {
            None => Some(FsFormat::Raw),
            Some(_) => self.optional("format", FsFormat::parse),
        };
        let label = self.text("label").map(str::to_owned);
        let mount = self.text("mount").map(str::to_owned);
        let mkfs_options = self.texts("mkfs_options");
        Some(FileSystem { format: format?, label, mount, mkfs_options })
    }

    fn partition(&mut self) -> Option<Partition> {
        let size = self.parsed("size", "size_range", PartitionSize::parse);
        let type_guid = self.parsed("type_guid", "nil_type", PartitionType::parse);
        let member_of = self.text("member_of").map(str::to_owned);
        let FileSystem { format, label, mount, mkfs_options } = self.file_system()?;
        // A GPT name holds 36 UTF-16 units (UEFI 5.3.3); 32 characters can need 64 of them.
        if let Some(units) = label.as_ref().map(|label| label.encode_utf16().count())
            && units > partition::MAX_NAME_UNITS
        {
            let what = format!(
                "needs {units} UTF-16 units, a GPT name holds {}; shorten it.",
                partition::MAX_NAME_UNITS
            );
            self.fail("label", "maxBytes", &what);
        }
        Some(Partition { size: size?, type_guid: type_guid?, format, label, mount, mkfs_options, member_of })
    }

    fn parsed<T, E: std::fmt::Display>(
        &mut self,
        name: &str,
        code: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        if !self.object.contains_key(name) {
            self.fail(name, "required", "is missing.");
        }
        match parse(self.text(name)?) {
            Ok(parsed) => Some(parsed),
            Err(error) => {
                self.fail(name, code, &format!("{error}."));
                None
            }
        }
    }
}
