//! A configuration file and an environment are loaded. `cargo fuzz run settings`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| settings::fuzz::settings(data));
