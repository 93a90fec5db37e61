//! The query of a signed media URL is parsed and verified. `cargo fuzz run signed_url`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| media::fuzz::signed_query(data));
