//! A file is read as a program and as a kernel module. `cargo fuzz run maintenance_elf`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| maintenance::fuzz::elf(data));
