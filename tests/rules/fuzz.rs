//! The bodies of the fuzz targets on generated input: a little of what a fuzzer does, in every test run.

#[path = "../../fuzz/bodies/credentials.rs"]
mod credentials;
#[path = "../../fuzz/bodies/requests.rs"]
mod requests;

use proptest::prelude::*;

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
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn request_lines(method in prop::sample::select(vec!["GET", "HEAD", "POST", "DELETE", "get", ""]), path in path(), query in query()) {
        requests::check(format!("{method}\n{path}\n{query}").as_bytes());
    }

    #[test]
    fn anything_as_a_request(data in prop::collection::vec(any::<u8>(), 0..200)) {
        requests::check(&data);
    }

    #[test]
    fn selectors(text in "[a-c!=<>(),. \\\\inot/-]{0,30}") {
        requests::check(text.as_bytes());
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
