//! The bodies of the fuzz targets, so that ordinary tests can replay the seeds. Each panics when a promise is broken.

use std::io::{Cursor, Read};

use crate::qcow2::Qcow2;

/// The most bytes of a disk that a target reads.
const MOST: u64 = 8 << 20;

/// Reads the disk of a qcow2 image, to its end or to an error. It never has more bytes than the header says.
///
/// # Panics
/// When the disk has another length than the header says, or a second read gives other bytes.
pub fn qcow2(data: &[u8]) {
    let read = || {
        let disk = Qcow2::open(Cursor::new(data)).ok()?;
        let expected = disk.disk_bytes().min(MOST);
        let mut bytes = Vec::new();
        let ended = disk.take(MOST).read_to_end(&mut bytes).map_err(|why| why.to_string());
        assert!(bytes.len() as u64 <= expected);
        assert!(ended.is_err() || bytes.len() as u64 == expected);
        Some((bytes, ended))
    };
    assert!(read() == read(), "two reads differ");
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::test_kit::seeds;

    fn corpus() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/qcow2")
    }

    #[test]
    fn the_seeds_of_the_corpus_are_those_that_this_crate_makes() {
        for (name, bytes) in seeds() {
            let path = corpus().join(name);
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                std::fs::create_dir_all(corpus()).unwrap();
                std::fs::write(&path, &bytes).unwrap();
            }
            assert!(std::fs::read(&path).unwrap() == bytes, "UPDATE_GOLDEN=1 rewrites {}", path.display());
        }
    }

    #[test]
    fn every_file_of_the_corpus_is_read() {
        for entry in std::fs::read_dir(corpus()).unwrap() {
            qcow2(&std::fs::read(entry.unwrap().path()).unwrap());
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::test_runner::Config::with_cases(256))]
        #[test]
        fn a_changed_seed_breaks_no_promise(at in 0_usize..8192, value: u8, cut in 0_usize..16_384) {
            for (_, mut seed) in seeds() {
                let at = at % seed.len();
                seed[at] = value;
                qcow2(&seed);
                seed.truncate(cut);
                qcow2(&seed);
            }
        }
    }
}
