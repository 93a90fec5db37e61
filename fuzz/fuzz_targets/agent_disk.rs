//! The partition tables of a hostile disk are read, grown and written. `cargo fuzz run agent_disk`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| agent::fuzz::disk(data));
