//! The error response of a BMC is parsed. `cargo fuzz run redfish_error`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| redfish::fuzz::error_body(data));
