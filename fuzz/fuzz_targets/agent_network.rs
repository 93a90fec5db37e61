//! Bytes of the network and of the kernel are parsed: DHCP, netlink, device events, the network of a job. `cargo fuzz run agent_network`
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| agent::fuzz::network(data));
