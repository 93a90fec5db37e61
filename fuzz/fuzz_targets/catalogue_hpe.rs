//! The JSON catalogue of a repository is read. `cargo fuzz run catalogue_hpe`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| firmware::fuzz::catalogue_hpe(data));
