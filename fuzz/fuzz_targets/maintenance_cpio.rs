//! Entries become the archive that the kernel unpacks. `cargo fuzz run maintenance_cpio`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| maintenance::fuzz::cpio(data));
