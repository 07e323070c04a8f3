//! One target of those in `bodies`: the one that `FUZZ_TARGET` names. `fuzz/run` reads the names here.

#![no_main]

use std::sync::LazyLock;

type Check = fn(&[u8]);

const TARGETS: &[(&str, Check)] = &[
    ("config", bodies::config::check),
    ("continue_tokens", bodies::continue_tokens::check),
    ("credentials", bodies::credentials::check),
    ("durations", bodies::durations::check),
    ("gather", bodies::gather::check),
    ("json_item", bodies::json_item::check),
    ("json_list", bodies::json_list::check),
    ("json_watch", bodies::json_watch::check),
    ("kubeconfig", bodies::kubeconfig::check),
    ("metadata", bodies::metadata::check),
    ("pages", bodies::pages::check),
    ("protobuf_item", bodies::protobuf_item::check),
    ("protobuf_list", bodies::protobuf_list::check),
    ("protobuf_watch", bodies::protobuf_watch::check),
    ("prune", bodies::prune::check),
    ("requests", bodies::requests::check),
    ("resume_tokens", bodies::resume_tokens::check),
    ("selectors", bodies::selectors::check),
    ("snapshots", bodies::snapshots::check),
    ("tables", bodies::tables::check),
];

static CHECK: LazyLock<Check> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
    TARGETS.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("there is no target {name}")).1
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| (*CHECK)(data));
