//! The XML catalogue of all systems is read. `cargo fuzz run catalogue_dell`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| firmware::fuzz::catalogue_dell(data));
