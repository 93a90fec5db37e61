//! A package is read and unpacked into a tree. `cargo fuzz run maintenance_package`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| maintenance::fuzz::package(data));
