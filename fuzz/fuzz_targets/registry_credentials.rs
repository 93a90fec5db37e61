//! An `Authorization` header and a file of users. `cargo fuzz run registry_credentials`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| registry::fuzz::credentials(data));
