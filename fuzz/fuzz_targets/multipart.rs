//! A form with a file is read. `cargo fuzz run multipart`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| web::multipart::fuzz(data));
