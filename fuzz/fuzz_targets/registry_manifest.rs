//! A manifest is parsed with its media type. `cargo fuzz run registry_manifest`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| registry::fuzz::manifest(data));
