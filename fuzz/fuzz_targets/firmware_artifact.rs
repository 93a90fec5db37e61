//! The manifest of a firmware file is read, written and read again. `cargo fuzz run firmware_artifact`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| firmware::fuzz::artifact(data));
