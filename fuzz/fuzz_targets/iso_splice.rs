//! A file is added to a hostile image: a refusal, or an image that shows the file. `cargo fuzz run iso_splice`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    iso9660::fuzz::splice(data);
});
