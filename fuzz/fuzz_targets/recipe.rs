//! A recipe is validated. `cargo fuzz run recipe`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| recipe::fuzz::recipe(data));
