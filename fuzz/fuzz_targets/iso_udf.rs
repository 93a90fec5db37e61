//! A hostile UDF image is opened, walked and read. `cargo fuzz run iso_udf`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    iso9660::fuzz::read_udf(data);
});
