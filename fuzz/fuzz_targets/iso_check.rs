//! A hostile image is checked, and read if the checker finds no error. `cargo fuzz run iso_check`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    iso9660::fuzz::check(data);
});
