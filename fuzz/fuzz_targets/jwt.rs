//! A token is verified, claims are signed and verified, or keys are read. `cargo fuzz run jwt`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| access::auth::fuzz::jwt(data));
