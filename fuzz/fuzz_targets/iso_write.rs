//! An arbitrary tree is planned, written, read back in every namespace and compared. `cargo fuzz run iso_write`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| iso9660::fuzz::write_roundtrip(data));
