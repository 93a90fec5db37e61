//! Finds planted secrets in bytes, in every form in which a program writes one by mistake.
//!
//! ```text
//!   plain    JSON text    URL-encoded    hex, both cases    base64 and base64url at each of three alignments
//! ```
//! At an alignment other than the first, a base64 text contains a secret without the characters at its edges, which depend on its
//! neighbours. So the search finds `user:SECRET` in the base64 of a Basic login.

use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// The forms of a secret, each with its name.
fn forms(secret: &str) -> Vec<(&'static str, Vec<u8>)> {
    let encoded: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
    let escaped = serde_json::to_string(secret).unwrap();
    let mut forms = vec![
        ("plain", secret.as_bytes().to_vec()),
        ("URL-encoded", encoded.replace('+', "%20").into_bytes()),
        ("a form field", encoded.into_bytes()),
        ("JSON", escaped.trim_matches('"').as_bytes().to_vec()),
        ("hex", hex::encode(secret).into_bytes()),
        ("hex", hex::encode_upper(secret).into_bytes()),
    ];
    for before in 0..3_usize {
        let mut aligned = vec![0; before];
        aligned.extend(secret.as_bytes());
        let edge = [0, 2, 3][before];
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            let text = engine.encode(&aligned);
            let end = text.len() - usize::from(aligned.len() % 3 != 0);
            forms.push(("base64", text.as_bytes()[edge..end].to_vec()));
        }
    }
    forms
}

/// Secrets in all their forms.
pub(crate) struct Canaries {
    /// What the secret is, the name of the form, and the form.
    forms: Vec<(&'static str, &'static str, Vec<u8>)>,
    /// The forms that begin with two bytes, by their number: one pass finds all of them.
    starts: Vec<Vec<usize>>,
}

impl Canaries {
    pub(crate) fn new<'a>(secrets: impl IntoIterator<Item = (&'static str, &'a str)>) -> Self {
        let of = |(what, secret): (&'static str, &str)| {
            assert!(secret.len() >= 8, "{what} is too short to differ from other text");
            forms(secret).into_iter().map(move |(form, bytes)| (what, form, bytes)).collect::<Vec<_>>()
        };
        let forms: Vec<_> = secrets.into_iter().flat_map(of).collect();
        let mut starts = vec![Vec::new(); 1 << 16];
        for (number, (_, _, form)) in forms.iter().enumerate() {
            starts[usize::from(u16::from_be_bytes([form[0], form[1]]))].push(number);
        }
        Self { forms, starts }
    }

    /// The secrets in these bytes: what each is, its form, and where it begins.
    pub(crate) fn found_in(&self, bytes: &[u8]) -> Vec<(&'static str, &'static str, usize)> {
        let mut found = Vec::new();
        for (at, pair) in bytes.windows(2).enumerate() {
            for number in &self.starts[usize::from(u16::from_be_bytes([pair[0], pair[1]]))] {
                let (what, form, text) = &self.forms[*number];
                if bytes[at..].starts_with(text) {
                    found.push((*what, *form, at));
                }
            }
        }
        found
    }

    /// Fails if a secret is in these bytes, with what precedes it.
    pub(crate) fn absent(&self, place: &str, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        if let Some((what, form, at)) = self.found_in(bytes).first() {
            let shown = String::from_utf8_lossy(&bytes[at.saturating_sub(300)..*at]);
            panic!("{what} is in {place}, as {form}, after: …{shown}");
        }
    }

    /// Fails if a secret is in a file below a folder. Returns the number of files.
    pub(crate) fn absent_below(&self, place: &str, folder: &Path) -> usize {
        let mut files = 0;
        each_file(folder, &mut |path| {
            files += 1;
            self.absent(&format!("{place}, {}", path.display()), std::fs::read(path).unwrap());
        });
        files
    }
}

/// Visits every file below a folder.
fn each_file(folder: &Path, visit: &mut impl FnMut(&Path)) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => each_file(&entry.path(), visit),
            kind if kind.is_file() => visit(&entry.path()),
            _ => {}
        }
    }
}

/// The files of a `.tar.gz`, with names.
pub(crate) fn unpacked(path: &Path) -> Vec<(String, Vec<u8>)> {
    let file = std::fs::File::open(path).unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let read = |entry: std::io::Result<tar::Entry<'_, _>>| {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        (name, bytes)
    };
    archive.entries().unwrap().map(read).collect()
}

#[test]
fn a_planted_secret_is_found_in_every_form_at_every_alignment() {
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    let secret = "canary/with+odd \"chars\" ü?>";
    let canaries = Canaries::new([("it", secret)]);
    for around in ["", "a", "ab", "abc", "user:"] {
        let text = format!("{around}{secret}{around}");
        let url: String = url::form_urlencoded::byte_serialize(text.as_bytes()).collect();
        for (form, shown) in [
            ("plain", text.clone()),
            ("JSON", serde_json::json!({ "it": text }).to_string()),
            ("URL", format!("/?a={url}")),
            ("URL", format!("/{}", url.replace('+', "%20"))),
            ("hex", hex::encode(&text)),
            ("hex", hex::encode_upper(&text)),
            ("base64", format!("Basic {}", STANDARD.encode(&text))),
            ("base64", URL_SAFE.encode(&text)),
        ] {
            let mut bytes = vec![0xff, 0];
            bytes.extend(shown.as_bytes());
            assert!(!canaries.found_in(&bytes).is_empty(), "{form}: {shown}");
        }
    }
    for other in
        ["", "canary/with+odd", &hex::encode("canary/with+odd"), &STANDARD.encode("canary/with+odd ")]
    {
        assert_eq!(canaries.found_in(other.as_bytes()), [], "{other}");
    }
}
