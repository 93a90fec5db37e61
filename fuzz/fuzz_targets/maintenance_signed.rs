//! A signed text, a keyring and an index of packages are read. `cargo fuzz run maintenance_signed`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| maintenance::fuzz::signed(data));
