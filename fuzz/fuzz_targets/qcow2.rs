//! The disk of a hostile qcow2 image is read. `cargo fuzz run qcow2`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| disk_file::fuzz::qcow2(data));
