//! What a client sends before it is known: path, reference, query, ranges. `cargo fuzz run registry_path`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| registry::fuzz::request_path(data));
