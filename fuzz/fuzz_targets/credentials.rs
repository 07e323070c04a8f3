#![no_main]

#[path = "../bodies/credentials.rs"]
mod credentials;

libfuzzer_sys::fuzz_target!(|data: &[u8]| credentials::check(data));
