//! Firmware images of simulated BMCs, and what is read of them while they arrive.
//!
//! ```text
//!   SIMFW1 {"component":"BIOS","version":"2.19.1","size":4096,"crc32":"0badcafe"}\n   then filler to `size` bytes
//! ```
//!
//! `crc32` is that of all bytes after the line. Invariant: an image of any size is checked with one line of it in memory.

use serde_json::{Value, json};

const MAGIC: &[u8] = b"SIMFW1 ";
/// The longest first line.
const MAX_LINE: usize = 1024;

/// Builds an image for a component (the `Name` or `Id` of a member of the firmware inventory) of this many bytes, at least
/// 256. `model` limits it to a model of the system.
pub fn firmware_image(component: &str, version: &str, model: Option<&str>, size: usize) -> Vec<u8> {
    let size = size.max(256);
    let line = |crc: u32| {
        // Always eight digits: the length of the line does not depend on what follows it.
        let crc = format!("{crc:08x}");
        let mut about = json!({ "component": component, "version": version, "size": size, "crc32": crc });
        if let Some(model) = model {
            about["model"] = json!(model);
        }
        [MAGIC, about.to_string().as_bytes(), b"\n"].concat()
    };
    let filler = 0..size.saturating_sub(line(0).len());
    let body: Vec<u8> = filler.map(|at| u8::try_from(at % 251).unwrap_or_default()).collect();
    let head = line(crc32fast::hash(&body));
    [head, body].concat()
}

/// The facts in the first line of an image: its component, its version and its model.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ImageFacts {
    pub(crate) component: String,
    pub(crate) version: String,
    pub(crate) model: Option<String>,
}

/// The reason why an image is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ImageProblem {
    NotFirmware,
    Damaged,
}

/// Reads an image in pieces.
#[derive(Debug, Default)]
pub(crate) struct ImageReader {
    line: Vec<u8>,
    has_line: bool,
    length: u64,
    crc: crc32fast::Hasher,
}

impl ImageReader {
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) {
        self.length += bytes.len() as u64;
        if !self.has_line {
            match bytes.iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    self.keep(&bytes[..end]);
                    self.has_line = true;
                    bytes = &bytes[end + 1..];
                }
                None => {
                    self.keep(bytes);
                    return;
                }
            }
        }
        self.crc.update(bytes);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_LINE.saturating_sub(self.line.len());
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Judges the image by its first line; `announced` is its length when only a part was read.
    pub(crate) fn finish(&self, announced: Option<u64>) -> Result<ImageFacts, ImageProblem> {
        let line = self.line.strip_prefix(MAGIC).ok_or(ImageProblem::NotFirmware)?;
        let about: Value = serde_json::from_slice(line).map_err(|_| ImageProblem::NotFirmware)?;
        let number = |name: &str| about.get(name).and_then(Value::as_u64);
        let text = |name: &str| about.get(name).and_then(Value::as_str).map(str::to_owned);
        let whole = number("size") == Some(announced.unwrap_or(self.length));
        let crc = format!("{:08x}", self.crc.clone().finalize());
        let intact = announced.is_some() || text("crc32") == Some(crc);
        if !self.has_line || !whole || !intact {
            return Err(ImageProblem::Damaged);
        }
        let (Some(component), Some(version)) = (text("component"), text("version")) else {
            return Err(ImageProblem::NotFirmware);
        };
        Ok(ImageFacts { component, version, model: text("model") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(image: &[u8], piece: usize) -> Result<ImageFacts, ImageProblem> {
        let mut reader = ImageReader::default();
        image.chunks(piece).for_each(|piece| reader.feed(piece));
        reader.finish(None)
    }

    #[test]
    fn an_image_is_recognised_in_pieces_of_any_size_and_damage_is_seen() {
        for size in [256, 4096, 100_003] {
            let image = firmware_image("BIOS", "2.19.1", Some("R750"), size);
            assert_eq!(image.len(), size);
            for piece in [1, 7, 65_536] {
                assert_eq!(read(&image, piece).unwrap().version, "2.19.1");
            }
            assert_eq!(read(&image[..size - 1], 64), Err(ImageProblem::Damaged));
            let mut wrong = image.clone();
            wrong[size - 1] ^= 1;
            assert_eq!(read(&wrong, 64), Err(ImageProblem::Damaged));
        }
        assert_eq!(read(b"an ISO image\n", 4), Err(ImageProblem::NotFirmware));
    }
}
