//! The XML file of a package and the JSON index of packages are read. `cargo fuzz run catalogue_lenovo`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| firmware::fuzz::catalogue_lenovo(data));
