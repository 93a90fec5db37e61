//! The value of an `Authorization` header is read. `cargo fuzz run authorization`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| access::auth::fuzz::authorization(data));
