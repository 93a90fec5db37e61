//! The seeds of the fuzz targets for credentials, settings, forms and rosters, replayed without a fuzzer.
//!
//! ```text
//! authorization  data = the value of an Authorization header
//! session_cookie data = lines of Cookie headers
//! jwt            data = a kind, then: a token | header NUL claims, signed | a key set | PEM public keys
//! multipart      data = a content type, a line feed, a body
//! roster         data = a table or a document of servers
//! settings       data = the configuration file NUL lines NAME=VALUE of the environment
//! ```
//!
//! Each function panics when a promise of its crate is broken; a fuzz target only calls its function.

use std::path::Path;

use access::auth::fuzz::{authorization, jwt};
use access::auth::session_fuzz::cookies;

type FuzzBody = fn(&[u8]);

/// The fuzz targets by name, with the function of each.
const TARGETS: [(&str, FuzzBody); 6] = [
    ("authorization", authorization),
    ("jwt", jwt),
    ("multipart", web::multipart::fuzz),
    ("roster", roster::fuzz),
    ("session_cookie", cookies),
    ("settings", settings::fuzz::settings),
];

/// The seeds in `fuzz/corpus`, replayed without a fuzzer, whole and damaged.
#[test]
fn the_seeds_of_the_fuzz_targets_and_their_damaged_forms_break_no_promise() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (name, target) in TARGETS {
        let mut seeds = 0;
        for seed in std::fs::read_dir(corpus.join(name)).unwrap().flatten() {
            let seed = std::fs::read(seed.path()).unwrap();
            target(&seed);
            for end in 0..seed.len().min(600) {
                target(&seed[..end]);
                let mut changed = seed.clone();
                changed[end] = b"\0\"{.=,:A "[end % 9];
                target(&changed);
            }
            seeds += 1;
        }
        assert!(seeds > 0, "{name} has no seed");
    }
}
