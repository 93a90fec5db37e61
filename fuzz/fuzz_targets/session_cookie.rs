//! The `Cookie` lines of a request are read. `cargo fuzz run session_cookie`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| access::auth::session_fuzz::cookies(data));
