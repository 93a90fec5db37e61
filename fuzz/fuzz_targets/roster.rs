//! A table or document of servers is read. `cargo fuzz run roster`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| roster::fuzz(data));
