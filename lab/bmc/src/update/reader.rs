//! Reads an upload while it arrives: the image itself, or a form around it.
//!
//! ```text
//!   form:  text parts (kept, at most 64 KiB) ─► header of the part with a file name ─► image ─► CRLF --boundary-- CRLF
//! ```
//!
//! Invariant: beside the text parts at most one piece and the end of the form are in memory.

use std::collections::BTreeMap;

use super::image::{ImageFacts, ImageProblem, ImageReader};

const MAX_HEAD: usize = 64 * 1024;

/// The content of an upload.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Upload {
    /// The text parts of a form by name; empty for an image without a form.
    pub(crate) parts: BTreeMap<String, String>,
    /// The names of all parts in order.
    pub(crate) names: Vec<String>,
    /// Whether the upload was a form.
    pub(crate) form: bool,
    /// The bytes of the body.
    pub(crate) bytes: u64,
    /// The facts of the image, or the reason why it is refused.
    pub(crate) image: Result<ImageFacts, ImageProblem>,
}

/// Reads one upload.
#[derive(Debug)]
pub(crate) struct UploadReader {
    boundary: Option<Vec<u8>>,
    head: Vec<u8>,
    in_image: bool,
    hold: Vec<u8>,
    image: ImageReader,
    bytes: u64,
    malformed: bool,
}

impl UploadReader {
    pub(crate) fn new(content_type: &str) -> Self {
        let is_form = content_type.trim_start().to_ascii_lowercase().starts_with("multipart/form-data");
        let boundary =
            content_type.split(';').filter_map(|part| part.trim().strip_prefix("boundary=")).next();
        let boundary = boundary.map(|boundary| boundary.trim_matches('"').as_bytes().to_vec());
        Self {
            malformed: is_form && boundary.is_none(),
            boundary: boundary.filter(|_| is_form),
            in_image: !is_form,
            head: Vec::new(),
            hold: Vec::new(),
            image: ImageReader::default(),
            bytes: 0,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        match (&self.boundary, self.in_image) {
            (None, _) => self.image.feed(bytes),
            (Some(_), true) => self.feed_image(bytes),
            (Some(_), false) => {
                if self.head.len() + bytes.len() > MAX_HEAD + 256 * 1024 {
                    self.malformed = true;
                    return;
                }
                self.head.extend_from_slice(bytes);
                let Some(end) = image_begins(&self.head) else {
                    self.malformed |= self.head.len() > MAX_HEAD;
                    return;
                };
                let rest = self.head.split_off(end);
                self.in_image = true;
                self.feed_image(&rest);
            }
        }
    }

    /// Passes on all but the last bytes, which may be the end of the form.
    fn feed_image(&mut self, bytes: &[u8]) {
        let end = self.end().len();
        self.hold.extend_from_slice(bytes);
        if self.hold.len() > end {
            let passed = self.hold.len() - end;
            self.image.feed(&self.hold[..passed]);
            self.hold.drain(..passed);
        }
    }

    fn end(&self) -> Vec<u8> {
        let boundary = self.boundary.clone().unwrap_or_default();
        [b"\r\n--", boundary.as_slice(), b"--\r\n"].concat()
    }

    /// The upload; `None` when it is a form that is not valid.
    pub(crate) fn finish(self) -> Option<Upload> {
        let form = self.boundary.is_some();
        if self.malformed || (form && (!self.in_image || self.hold != self.end())) {
            return None;
        }
        let head = String::from_utf8(self.head).ok()?;
        let boundary =
            self.boundary.and_then(|boundary| String::from_utf8(boundary).ok()).unwrap_or_default();
        let (mut parts, mut names) = (BTreeMap::new(), Vec::new());
        for part in head.split(&format!("--{boundary}\r\n")).filter(|part| form && !part.is_empty()) {
            let (header, value) = part.split_once("\r\n\r\n")?;
            let name = header.split("name=\"").nth(1)?.split('"').next()?.to_owned();
            names.push(name.clone());
            if !header.contains("filename=") {
                parts.insert(name, value.strip_suffix("\r\n")?.to_owned());
            }
        }
        Some(Upload { parts, names, form, bytes: self.bytes, image: self.image.finish(None) })
    }
}

/// The position after the header of the part that has a file name.
fn image_begins(head: &[u8]) -> Option<usize> {
    let find = |from: usize, what: &[u8]| {
        let found = head.get(from..)?.windows(what.len()).position(|window| window == what)?;
        Some(from + found)
    };
    let name = find(0, b"filename=")?;
    Some(find(name, b"\r\n\r\n")? + 4)
}

#[cfg(test)]
mod tests {
    use super::super::image::firmware_image;
    use super::*;

    fn form(image: &[u8]) -> Vec<u8> {
        let head = "--b\r\nContent-Disposition: form-data; name=\"UpdateParameters\"\r\nContent-Type: application/json\r\n\r\n{}\r\n\
                    --b\r\nContent-Disposition: form-data; name=\"UpdateFile\"; filename=\"x.bin\"\r\n\r\n";
        [head.as_bytes(), image, b"\r\n--b--\r\n"].concat()
    }

    fn read(body: &[u8], piece: usize) -> Option<Upload> {
        let mut reader = UploadReader::new("multipart/form-data; boundary=b");
        body.chunks(piece).for_each(|piece| reader.feed(piece));
        reader.finish()
    }

    #[test]
    fn a_form_is_read_in_pieces_of_any_size_and_its_end_is_needed() {
        let image = firmware_image("BIOS", "2", None, 5000);
        let body = form(&image);
        for piece in [1, 13, 70_000] {
            let upload = read(&body, piece).unwrap();
            assert_eq!(upload.parts["UpdateParameters"], "{}");
            assert_eq!(upload.names, ["UpdateParameters", "UpdateFile"]);
            assert!(upload.image.is_ok() && upload.bytes == body.len() as u64);
        }
        assert!(read(&body[..body.len() - 1], 64).is_none());
        let mut raw = UploadReader::new("application/octet-stream");
        raw.feed(&image);
        assert!(raw.finish().unwrap().image.is_ok());
    }
}
