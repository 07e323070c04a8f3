//! The bodies of the fuzz targets on generated input: a little of what a fuzzer does, in every test run.
#![allow(clippy::expect_used, clippy::panic, reason = "what a target finds is a panic")]

#[path = "../../fuzz/bodies/mod.rs"]
#[allow(unreachable_pub, reason = "they are a library of their own")]
mod bodies;
mod choices;
mod json;
mod protobuf;
mod text;

use bodies::{
    config, continue_tokens, durations, gather, kubeconfig, metadata, pages, prune, resume_tokens, selectors,
    snapshots, tables,
};
use bodies::{credentials, json_item, json_list, json_watch, protobuf_item, protobuf_list, protobuf_watch, requests};
use choices::{Choices, choices, damage, damaged};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// The same inputs in every run: `fuzz/run` is what looks for new ones.
fn cases(cases: u32) -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(u64::from(cases));
    ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() }
}

fn path() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        4 => prop::sample::select(vec![
            "api", "apis", "v1", "apps", "watch", "proxy", "namespaces", "pods", "deployments", "a", "b", "status", "finalize",
        ])
        .prop_map(str::to_owned),
        1 => prop::sample::select(vec!["", ".", "..", "%2F", "%2e%2e", "a%2Fb", "%", "%zz", "%00", "é", " ", "%c3%28"])
            .prop_map(str::to_owned),
        1 => "[a-z0-9%./]{0,6}",
    ];
    (prop::collection::vec(segment, 0..9), prop::sample::select(vec!["/", "", "//"]))
        .prop_map(|(segments, lead)| format!("{lead}{}", segments.join("/")))
}

fn query() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "watch",
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "sendInitialEvents",
        "fieldSelector",
        "labelSelector",
        "timeoutSeconds",
        "x",
    ]);
    let value = prop_oneof![
        prop::sample::select(vec![
            "",
            "0",
            "1",
            "true",
            "false",
            "metadata.name%3Da",
            "metadata.name=a",
            "metadata.name==..",
            "metadata.name!=a",
            "metadata.name=a,metadata.name=b",
            "metadata.name=a%5C%2Cb",
            "a+in+(b,c),!d",
            "a%3E1",
            "NotOlderThan",
            "Exact",
        ])
        .prop_map(str::to_owned),
        "[a-z0-9=!<>(),.%+; \\\\-]{0,12}",
    ];
    prop::collection::vec((name, value), 0..5).prop_map(|pairs| {
        pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
    })
}

proptest! {
    #![proptest_config(cases(4000))]

    #[test]
    fn request_lines(method in prop::sample::select(vec!["GET", "HEAD", "POST", "DELETE", "get", ""]), path in path(), query in query()) {
        requests::check(format!("{method}\n{path}\n{query}").as_bytes());
    }

    #[test]
    fn anything_as_a_request(data in prop::collection::vec(any::<u8>(), 0..200)) {
        requests::check(&data);
    }

    #[test]
    fn selectors_of_any_text(text in "[a-c!=<>(),. \\\\inot/-]{0,30}") {
        selectors::check(format!("{text}\n{text}\na=b in=5\n\np\nn").as_bytes());
    }

    #[test]
    fn authorizations(scheme in "[Bb]earer|Basic|bEARER|", gap in "[ \\t]{0,3}", token in "[!-~ ]{0,20}", more in "[ -~\\n]{0,40}") {
        credentials::check(format!("{scheme}{gap}{token}\n{more}").as_bytes());
    }

    #[test]
    fn anything_as_credentials(data in prop::collection::vec(any::<u8>(), 0..300)) {
        credentials::check(&data);
    }
}

/// Targets on input that is almost right. Where it says so, four bytes behind it say in which chunks it arrives.
macro_rules! almost_right {
    ($cases:expr; $($test:ident: $target:ident, $make:expr, $in_chunks:expr;)*) => {
        proptest! {
            #![proptest_config(cases($cases))]
            $(#[test]
            fn $test(choices in choices(), damage in damage(), trailer: [u8; 4]) {
                let mut input = damaged($make(&mut Choices(&choices)).into(), &damage);
                if $in_chunks {
                    input.extend(trailer);
                }
                $target::check(&input);
            })*
        }
    };
}

almost_right! { 1500;
    json_items: json_item, json::item, false;
    json_lists: json_list, json::list, true;
    json_watches: json_watch, json::stream, true;
    protobuf_items: protobuf_item, protobuf::item, false;
    protobuf_lists: protobuf_list, protobuf::list, true;
    protobuf_watches: protobuf_watch, protobuf::stream, true;
    metadata_alone: metadata, json::item, false;
    pruned_objects: prune, text::paths, false;
    selected_objects: selectors, text::selectors, false;
    continued_lists: continue_tokens, text::continue_token, false;
    tables_of_rows: tables, text::table, true;
}

almost_right! { 400;
    configurations: config, text::configuration, false;
    kubeconfigs: kubeconfig, text::kubeconfig, false;
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn snapshots_on_disk(kind in 0u8..3, bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        snapshots::check(&[&[kind][..], &bytes].concat());
    }

    #[test]
    fn cells_of_time(numbers: [i64; 3]) {
        durations::check(&numbers.map(i64::to_le_bytes).concat());
    }
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn gathered_writes(operations in prop::collection::vec(any::<u8>(), 0..120)) {
        gather::check(&operations);
    }

    #[test]
    fn walks_by_pages(data in prop::collection::vec(any::<u8>(), 3..60)) {
        pages::check(&data);
    }

    #[test]
    fn resumed_watches(rv: u64, damage in damage(), other: Vec<u8>) {
        let token = informerd::grpc::TokenBase::new("c", &Default::default()).at(informerd::meta::ResourceVersion(rv));
        resume_tokens::check(&damaged(token.to_vec(), &damage));
        resume_tokens::check(&other);
    }
}

/// Inputs on which `fuzz/run` has stopped.
#[test]
fn what_a_fuzzer_has_found() {
    resume_tokens::check(b"\x18\x01");
    let event = r#"{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k<s.io/v1","metadata":{"name":"p","namespace":"a","uid":"u","resourceVersion":"220"}}}"#;
    json_watch::check(&[event.as_bytes(), b"\n\0\x10\x80\x01"].concat());
}

/// Less deep than decoders read, and deeper, in what they pass over.
#[test]
fn what_is_nested_deep_is_read_or_refused_as_too_deep() {
    for hundreds in [99, 110] {
        let deep = [2, hundreds, 1, b'[', b'1', 2, hundreds, 1, b']'];
        for (meta, spec) in [(&deep[..], &b"1"[..]), (&b"1"[..], &deep[..])] {
            let head = &br#"{"metadata":{"name":"a","resourceVersion":"5","x":"#[..];
            let item = [head, meta, br#"},"spec":"#, spec, b"}"].concat();
            let around = |head: &str, tail: &str| [head.as_bytes(), &item, tail.as_bytes(), b"\0\x10\x80\x01"].concat();
            let list = r#"{"kind":"L","apiVersion":"v1","metadata":{"resourceVersion":"9"},"#;
            json_item::check(&item);
            metadata::check(&item);
            prune::check(&[&b"-metadata.x.y -spec.a\n"[..], &item].concat());
            json_list::check(&around(&format!(r#"{list}"items":["#), "]}"));
            json_watch::check(&around(r#"{"type":"ADDED","object":"#, "}"));
            tables::check(&around(&format!(r#"1{list}"rows":[{{"cells":[],"object":"#), "}]}"));
        }
    }
}
