//! The unauthenticated input of a request is parsed: path, reference, query, ranges. `cargo fuzz run registry_path`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| registry::fuzz::request_path(data));
