//! A hostile image is opened, walked and read, with its boot entries. `cargo fuzz run iso_read`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    iso9660::fuzz::read_image(data);
});
