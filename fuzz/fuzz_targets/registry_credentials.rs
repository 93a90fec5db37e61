//! An `Authorization` header and an htpasswd file are parsed. `cargo fuzz run registry_credentials`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| registry::fuzz::credentials(data));
