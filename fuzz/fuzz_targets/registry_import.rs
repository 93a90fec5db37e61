//! An archive or a directory of images is imported. `cargo fuzz run registry_import`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| registry::fuzz::import(data));
