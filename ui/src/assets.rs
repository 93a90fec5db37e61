//! The style sheet and the script, in the binary. The name of each has the hash of its content, so that a browser keeps it for
//! ever and a new version has another name.

use std::io::Write;
use std::sync::LazyLock;

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

/// The folder of the assets.
pub const FOLDER: &str = "/ui/assets/";
/// The characters of the hash that are part of a name.
const HASH_CHARS: usize = 12;

/// A file that pages refer to.
pub struct Asset {
    /// The path of the asset, with the hash of the content in its name.
    pub path: String,
    /// The media type of the asset, for the header `Content-Type`.
    pub media_type: &'static str,
    /// The content of the asset.
    pub content: &'static [u8],
    /// The content of the asset, compressed with gzip.
    pub gzip: Vec<u8>,
}

impl Asset {
    fn new(name: &str, extension: &str, media_type: &'static str, content: &'static [u8]) -> Self {
        let hash: String = hex::encode(Sha256::digest(content)).chars().take(HASH_CHARS).collect();
        Self { path: format!("{FOLDER}{name}-{hash}.{extension}"), media_type, content, gzip: gzip(content) }
    }
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // A vector takes every byte; an empty result is not served as compressed.
    encoder.write_all(content).and_then(|()| encoder.finish()).unwrap_or_default()
}

/// The style sheet of all pages.
pub static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("shoal", "css", "text/css; charset=utf-8", include_bytes!("../assets/shoal.css"))
});

/// The script of all pages.
pub static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("shoal", "js", "text/javascript; charset=utf-8", include_bytes!("../assets/shoal.js"))
});

/// The asset with this path.
pub fn find(path: &str) -> Option<&'static Asset> {
    [&*STYLE, &*SCRIPT].into_iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_asset_is_found_by_the_name_of_its_content_and_no_other() {
        assert_eq!(find(&STYLE.path).unwrap().media_type, "text/css; charset=utf-8");
        assert!(find("/ui/assets/shoal.css").is_none());
        assert_ne!(STYLE.path, SCRIPT.path);
    }

    #[test]
    fn the_script_and_the_style_sheet_stay_small() {
        let script = std::str::from_utf8(SCRIPT.content).unwrap();
        assert!(script.lines().count() < 320, "{} lines", script.lines().count());
        assert!(STYLE.gzip.len() < 12 << 10, "{} bytes", STYLE.gzip.len());
        assert!(SCRIPT.gzip.len() < 6 << 10, "{} bytes", SCRIPT.gzip.len());
    }

    #[test]
    fn the_script_makes_no_code_and_the_style_sheet_loads_nothing() {
        let script = std::str::from_utf8(SCRIPT.content).unwrap();
        for word in ["eval(", "new Function", "innerHTML", "http://", "https://"] {
            assert!(!script.contains(word), "{word}");
        }
        let style = std::str::from_utf8(STYLE.content).unwrap();
        for word in ["url(", "@import"] {
            assert!(!style.contains(word), "{word}");
        }
    }
}
