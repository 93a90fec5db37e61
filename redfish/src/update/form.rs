//! The body of a `multipart/form-data` upload, around an image that is streamed.
//!
//! ```text
//!   --boundary CRLF Content-Disposition: form-data; name="UpdateParameters" CRLF Content-Type: application/json …
//!   --boundary CRLF Content-Disposition: form-data; name="UpdateFile"; filename="…" CRLF … CRLF CRLF   = head
//!   (the image)
//!   CRLF --boundary-- CRLF                                                                             = tail
//! ```
//!
//! Specification: RFC 7578, DSP0266 (multipart HTTP push updates).

use bytes::{BufMut, Bytes, BytesMut};

/// A form; parts are added in the order in which they are sent, the image last.
pub(crate) struct Form {
    boundary: String,
    head: BytesMut,
}

impl Form {
    pub(crate) fn new() -> Self {
        let boundary = format!("shoal{}", uuid::Uuid::new_v4().simple());
        Form { boundary, head: BytesMut::new() }
    }

    /// Adds a part with text; `kind` is its content type.
    pub(crate) fn text(mut self, name: &str, kind: Option<&str>, text: &str) -> Self {
        self.begin(name, None, kind);
        self.head.put_slice(text.as_bytes());
        self.head.put_slice(b"\r\n");
        self
    }

    /// Ends the form with the part of the image: head, tail and the `Content-Type` of the request.
    pub(crate) fn image(mut self, name: &str, file: &str) -> (Bytes, Bytes, String) {
        self.begin(name, Some(&file_name(file)), Some("application/octet-stream"));
        let tail = format!("\r\n--{}--\r\n", self.boundary);
        let kind = format!("multipart/form-data; boundary={}", self.boundary);
        (self.head.freeze(), tail.into(), kind)
    }

    fn begin(&mut self, name: &str, file: Option<&str>, kind: Option<&str>) {
        let mut part = format!("--{}\r\nContent-Disposition: form-data; name=\"{name}\"", self.boundary);
        if let Some(file) = file {
            part += &format!("; filename=\"{file}\"");
        }
        if let Some(kind) = kind {
            part += &format!("\r\nContent-Type: {kind}");
        }
        self.head.put_slice(part.as_bytes());
        self.head.put_slice(b"\r\n\r\n");
    }
}

/// The name of a file as it is sent: some BMCs choose the kind of the image by it, none needs other characters.
pub(crate) fn file_name(name: &str) -> String {
    let kept = |char: &char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_');
    let name: String = name.chars().filter(kept).take(100).collect();
    if name.trim_matches('.').is_empty() { "firmware.bin".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_has_its_parts_in_order_and_ends_after_the_image() {
        let form = Form::new().text("UpdateParameters", Some("application/json"), "{}");
        let (head, tail, kind) = form.image("UpdateFile", "a b\"\r\n/../x.bin");
        let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
        let expected = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"UpdateParameters\"\r\nContent-Type: application/json\r\n\r\n{{}}\r\n\
             --{boundary}\r\nContent-Disposition: form-data; name=\"UpdateFile\"; filename=\"ab..x.bin\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n"
        );
        assert_eq!(String::from_utf8(head.to_vec()).unwrap(), expected);
        assert_eq!(tail, format!("\r\n--{boundary}--\r\n"));
        assert_eq!(file_name("../"), "firmware.bin");
    }
}
