//! Everything that a NATS server may send is read with bounds. `cargo fuzz run nats_server`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nats_carrier::fuzz(data));
