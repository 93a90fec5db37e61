//! The bodies of the fuzz targets: credentials and settings that anything may contain.
//!
//! ```text
//! authorization  data = the value of an Authorization header
//! cookies        data = lines of Cookie headers
//! jwt            data = a kind, then: a token | header NUL claims, signed | a key set | PEM public keys
//! multipart      data = a content type, a line feed, a body
//! roster         data = a table or a document of servers
//! settings       data = the configuration file NUL lines NAME=VALUE of the environment
//! ```
//!
//! Each function panics when a promise of the crate is broken; a fuzz target only calls its function.

pub use access::auth::fuzz::{authorization, jwt};
pub use access::auth::session_fuzz::cookies;
pub use roster::fuzz as roster;
pub use settings::fuzz::settings;
pub use web::multipart::fuzz as multipart;

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// The seeds in `fuzz/corpus`, replayed without a fuzzer, whole and damaged.
    #[test]
    fn the_seeds_of_the_fuzz_targets_and_their_damaged_forms_break_no_promise() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        type FuzzBody = fn(&[u8]);
        let targets: [(&str, FuzzBody); 5] = [
            ("authorization", super::authorization),
            ("jwt", super::jwt),
            ("multipart", super::multipart),
            ("roster", super::roster),
            ("settings", super::settings),
        ];
        for (name, target) in targets {
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

    /// `FUZZ_SECONDS=60 cargo test -p controller --release fuzz -- --ignored`: without a fuzzer, the seeds changed at random.
    #[test]
    #[ignore = "takes FUZZ_SECONDS (5) for each target; the libFuzzer form is .ci/fuzz"]
    fn random_changes_of_the_seeds_break_no_promise() {
        use std::time::{Duration, Instant};
        let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        type FuzzBody = fn(&[u8]);
        let targets: [(&str, FuzzBody); 5] = [
            ("authorization", super::authorization),
            ("jwt", super::jwt),
            ("multipart", super::multipart),
            ("roster", super::roster),
            ("settings", super::settings),
        ];
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % (below.max(1) as u64)).unwrap()
        };
        for (name, target) in targets {
            let files = std::fs::read_dir(corpus.join(name)).unwrap().flatten();
            let seeds: Vec<Vec<u8>> = files.map(|file| std::fs::read(file.path()).unwrap()).collect();
            let end = Instant::now() + Duration::from_secs(seconds);
            let mut runs = 0_u64;
            while Instant::now() < end {
                let mut input = seeds[random(seeds.len())].clone();
                for _ in 0..=random(6) {
                    let other = &seeds[random(seeds.len())];
                    let (at, from) = (random(input.len()), random(other.len()));
                    match random(5) {
                        0 if !input.is_empty() => input[at] = u8::try_from(random(256)).unwrap(),
                        1 => input.truncate(at),
                        2 => input.insert(at.min(input.len()), b"\0\"{}[].=,:-_\n"[random(13)]),
                        3 => input.extend_from_slice(&other[from..]),
                        _ => {
                            let piece = other[from..other.len().min(from + random(40))].to_vec();
                            input.splice(at..at, piece);
                        }
                    }
                }
                target(&input);
                runs += 1;
            }
            assert!(runs > 0);
            eprintln!("{name}: {runs} runs in {seconds} s, no finding");
        }
    }
}
