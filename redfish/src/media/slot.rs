//! A virtual media slot, as the BMC shows it. Specification: DSP0268 VirtualMedia.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use url::Url;

use crate::json::{self, Resource};
use crate::profile::{MediaMethod, Profile};

/// A media URL; its path contains a grant and is not shown.
#[derive(Clone, Eq, PartialEq)]
pub struct ImageUrl(pub(super) String);

impl ImageUrl {
    /// The URL with its grant, only for comparing and sending.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether this is `url` in another spelling: percent-encoding is decoded, the case of the host is ignored.
    pub fn is(&self, url: &str) -> bool {
        fn plain(text: &str) -> Option<(String, String)> {
            let url = Url::parse(text.trim()).ok()?;
            let port = url.port_or_known_default();
            let origin = format!("{}://{}:{port:?}", url.scheme(), url.host_str()?);
            Some((origin, decoded(url.path())))
        }
        self.0.trim() == url.trim() || plain(&self.0).is_some_and(|shown| plain(url) == Some(shown))
    }
}

impl fmt::Debug for ImageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = Url::parse(&self.0).ok();
        match url.as_ref().and_then(|url| Some((url.scheme(), url.host_str()?))) {
            Some((scheme, host)) => write!(f, "{scheme}://{host}/[redacted]"),
            None => f.write_str("[redacted]"),
        }
    }
}

fn decoded(path: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = (byte == b'%').then(|| tail.get(..2)).flatten();
        let value = hex.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(value.unwrap_or(byte));
        rest = if value.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The mechanism by which an image is inserted into a slot.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum InsertVia {
    /// `POST` to the action's target.
    Action(String),
    /// `PATCH` of the slot.
    Patch,
    /// `POST` to the target of the OEM action `InsertVirtualMedia`, whose only parameter is the image.
    InsertVirtualMedia(String),
    /// `POST` to the target of the OEM action `VmmControl`, which also ejects.
    VmmControl(String),
    /// `PATCH` of host and path, then `POST` to the target of the OEM action `IsoConfig.Mount`.
    IsoConfig(String),
    /// The slot accepts no image.
    Nothing,
}

/// A virtual media slot as the BMC shows it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Slot {
    /// Path of the slot.
    pub uri: String,
    /// The `Id` of the slot.
    pub id: String,
    /// The `Name` of the slot.
    pub name: String,
    /// The `MediaTypes` of the slot.
    pub media_types: Vec<String>,
    /// Whether the slot holds an image, `Inserted`.
    pub inserted: Option<bool>,
    /// `Image`; current state, which is not stored.
    #[serde(skip)]
    pub image: Option<ImageUrl>,
    /// `ImageName`; current state, which is not stored.
    #[serde(skip)]
    pub image_name: Option<String>,
    /// The `ConnectedVia` of the slot.
    pub connected_via: Option<String>,
    /// The way to insert an image.
    pub insert: InsertVia,
    /// The target of the eject action; some BMCs list it only while the slot holds an image.
    pub eject: Option<String>,
    /// The values of `TransferProtocolType` that the BMC lists, in upper case; empty if it lists none.
    pub transfer_protocols: Vec<String>,
}

impl Slot {
    pub(crate) fn of(resource: &Resource, profile: &Profile) -> Self {
        let fields = &resource.fields;
        let target =
            |name| json::word(json::action(fields, name)?, "target").and_then(|path| json::path_of(&path));
        let patchable =
            resource.allow.as_deref().is_none_or(|allow| allow.to_ascii_uppercase().contains("PATCH"));
        let by_action = || target("#VirtualMedia.InsertMedia").map(InsertVia::Action);
        let by_patch = || patchable.then_some(InsertVia::Patch);
        let oem = |name| json::oem_action(fields, name);
        let insert = match profile.vm_method {
            MediaMethod::Auto => by_action().or_else(by_patch),
            MediaMethod::Action => by_action(),
            MediaMethod::Patch => by_patch().or_else(by_action),
            MediaMethod::InsertVirtualMediaAction => oem("VirtualMedia.InsertVirtualMedia")
                .map(InsertVia::InsertVirtualMedia)
                .or_else(by_action)
                .or_else(by_patch),
            MediaMethod::VmmControlAction => {
                oem("VirtualMedia.VmmControl").map(InsertVia::VmmControl).or_else(by_action)
            }
            MediaMethod::IsoConfigAction => {
                oem("IsoConfig.Mount").map(InsertVia::IsoConfig).or_else(by_action).or_else(by_patch)
            }
        };
        let eject = match profile.vm_method {
            MediaMethod::InsertVirtualMediaAction => oem("VirtualMedia.EjectVirtualMedia"),
            MediaMethod::VmmControlAction => oem("VirtualMedia.VmmControl"),
            MediaMethod::IsoConfigAction => oem("IsoConfig.UnMount"),
            MediaMethod::Auto | MediaMethod::Action | MediaMethod::Patch => None,
        };
        let standard =
            || target("#VirtualMedia.EjectMedia").filter(|_| profile.vm_method != MediaMethod::Patch);
        let values = "TransferProtocolType@Redfish.AllowableValues";
        let in_action =
            json::action(fields, "#VirtualMedia.InsertMedia").map(|action| json::texts(action, values));
        let protocols =
            in_action.filter(|values| !values.is_empty()).unwrap_or_else(|| json::texts(fields, values));
        let image =
            fields.get("Image").and_then(Value::as_str).map(str::trim).filter(|image| !image.is_empty());
        Slot {
            uri: resource.path.clone(),
            id: json::word(fields, "Id").unwrap_or_default(),
            name: json::word(fields, "Name").unwrap_or_default(),
            media_types: json::texts(fields, "MediaTypes"),
            inserted: json::flag(fields, "Inserted"),
            image: image.map(|image| ImageUrl(json::clip(image, 4096))),
            image_name: json::word(fields, "ImageName"),
            connected_via: json::word(fields, "ConnectedVia"),
            insert: insert.unwrap_or(InsertVia::Nothing),
            eject: eject.or_else(standard),
            transfer_protocols: protocols.iter().map(|protocol| protocol.to_ascii_uppercase()).collect(),
        }
    }

    /// Whether the slot holds no image, judged by `Inserted`, `ConnectedVia` and `Image`.
    pub fn is_empty(&self) -> bool {
        let disconnected =
            self.connected_via.as_deref().is_some_and(|via| via.eq_ignore_ascii_case("NotConnected"));
        match self.inserted {
            Some(true) => false,
            Some(false) => disconnected || self.image.is_none(),
            None => self.image.is_none(),
        }
    }

    /// Whether the shown image may be this one: some BMCs show only its file name, or only that there is an image.
    pub fn may_be(&self, url: &str) -> bool {
        let file = url.rsplit('/').next().unwrap_or_default();
        let named = |shown: &str| !shown.contains('/') && decoded(shown).eq_ignore_ascii_case(file);
        match (&self.image, &self.image_name) {
            (Some(image), _) => image.is(url) || named(image.expose()),
            (None, Some(name)) => named(name),
            (None, None) => true,
        }
    }

    /// Whether the slot holds an image that may be this one.
    pub fn may_hold(&self, url: &str) -> bool {
        !self.is_empty() && self.inserted != Some(false) && self.may_be(url)
    }

    /// Whether the slot holds this image.
    pub fn holds(&self, url: &str) -> bool {
        !self.is_empty()
            && self.inserted != Some(false)
            && self.image.as_ref().is_some_and(|image| image.is(url))
    }

    /// Whether an image can be inserted.
    pub fn takes_media(&self) -> bool {
        self.insert != InsertVia::Nothing
    }

    /// Whether the slot is a CD for the host. A slot without `MediaTypes` is judged by its name.
    pub fn is_cd(&self) -> bool {
        let named = || [&self.id, &self.name].iter().any(|name| name.to_ascii_lowercase().contains("cd"));
        self.has_type(&["cd", "dvd"]) || (self.media_types.is_empty() && named())
    }

    /// The suffix the profile demands for the name of an image in this slot.
    pub fn suffix<'a>(&self, profile: &'a Profile) -> &'a str {
        if self.is_cd() { &profile.url_suffix_cd } else { &profile.url_suffix_usb }
    }

    /// Whether the slot is a USB stick or floppy for the host.
    pub fn is_usb(&self) -> bool {
        self.has_type(&["usbstick", "floppy"])
    }

    fn has_type(&self, types: &[&str]) -> bool {
        self.media_types.iter().any(|shown| types.contains(&shown.to_ascii_lowercase().as_str()))
    }
}
