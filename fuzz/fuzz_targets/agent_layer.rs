//! A hostile layer is read and applied to an empty tree. `cargo fuzz run agent_layer`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| agent::fuzz::layer(data));
