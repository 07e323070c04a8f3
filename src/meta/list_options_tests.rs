use super::*;

fn options(query: &str) -> ListOptions {
    ListOptions::decode(query).unwrap()
}

#[test]
fn decodes_every_option() {
    let got = options(
        "labelSelector=a%3Db&fieldSelector=metadata.name%3Dx&watch=1&allowWatchBookmarks=&resourceVersion=12\
         &resourceVersionMatch=Exact&timeoutSeconds=-5&limit=%2B7&continue=tok&sendInitialEvents=false&shardSelector=s\
         &limit=nonsense&Limit=nonsense&unknown=1",
    );
    let want = ListOptions {
        label_selector: "a=b".into(),
        field_selector: "metadata.name=x".into(),
        watch: true,
        allow_watch_bookmarks: true,
        resource_version: "12".into(),
        resource_version_match: "Exact".into(),
        timeout_seconds: Some(-5),
        limit: 7,
        continue_token: "tok".into(),
        send_initial_events: Some(false),
        shard_selector: "s".into(),
    };
    assert_eq!(got, want);
    assert_eq!(options(""), ListOptions::default());
    assert_eq!(ListOptions::decode_get("resourceVersion=3&limit=x").resource_version, "3");
}

#[test]
fn numbers_that_do_not_parse_are_refused_in_the_apiservers_order() {
    for (query, number, why) in [
        ("limit=abc", "abc", "invalid syntax"),
        ("limit=", "", "invalid syntax"),
        ("timeoutSeconds", "", "invalid syntax"),
        ("limit=x&timeoutSeconds=y", "y", "invalid syntax"),
        ("limit=9223372036854775808", "9223372036854775808", "value out of range"),
        ("limit=%ff", "\\xff", "invalid syntax"),
    ] {
        let want = bad_request(format!("strconv.ParseInt: parsing \"{number}\": {why}"));
        assert_eq!(ListOptions::decode(query), Err(want), "{query}");
    }
}

#[test]
fn a_watch_for_the_state_is_defaulted_to_initial_events() {
    for (query, defaulted) in [
        ("watch=1", true),
        ("watch=1&resourceVersion=0", true),
        ("watch=1&resourceVersion=", true),
        ("watch=1&resourceVersion=1", false),
        ("watch=1&resourceVersion=00", false),
        ("watch=1&sendInitialEvents=false", false),
        ("watch=1&resourceVersionMatch=NotOlderThan", false),
        ("watch=0", false),
    ] {
        let before = options(query);
        let mut after = before.clone();
        after.set_defaults();
        if defaulted {
            assert_eq!(after.send_initial_events, Some(true), "{query}");
            assert_eq!(after.resource_version_match, "NotOlderThan", "{query}");
        } else {
            assert_eq!(after, before, "{query}");
        }
    }
}

#[test]
fn refusals_of_combinations_are_one_status() {
    let status = options("sendInitialEvents=true").validate().unwrap_err();
    assert_eq!(
        status.to_json(),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list","reason":"Invalid","details":{"group":"meta.k8s.io","kind":"ListOptions","causes":[{"reason":"FieldValueForbidden","message":"Forbidden: sendInitialEvents is forbidden for list","field":"sendInitialEvents"}]},"code":422}"#
    );
    let mut defaulted = options("watch=1&continue=x");
    defaulted.set_defaults();
    assert!(
        defaulted
            .validate()
            .unwrap_err()
            .message
            .ends_with("resourceVersionMatch is forbidden when continue is provided")
    );
    for fine in ["watch=1&resourceVersion=5&continue=x&limit=1", "allowWatchBookmarks=1", "limit=-1", "watch=1"] {
        let mut fine = options(fine);
        fine.set_defaults();
        assert_eq!(fine.validate(), Ok(()));
    }
}

#[test]
fn a_list_names_its_state() {
    use ListRevision::{Any, Exact, MostRecent, NotOlderThan, Unusual};
    let token = ContinueToken { rv: 9, start: "/a/b".into() };
    let rv = ResourceVersion;
    for (query, want) in [
        ("", MostRecent),
        ("limit=5", MostRecent),
        ("resourceVersion=0&limit=5", Any),
        ("resourceVersion=7", NotOlderThan(rv(7))),
        ("resourceVersion=007&resourceVersionMatch=NotOlderThan&limit=5", NotOlderThan(rv(7))),
        ("resourceVersion=7&limit=5", Exact(rv(7))),
        ("resourceVersion=7&limit=-5", NotOlderThan(rv(7))),
        ("resourceVersion=7&resourceVersionMatch=Exact", Exact(rv(7))),
        ("resourceVersion=00", Unusual),
        (&format!("continue={}&resourceVersion=0", token.encode()), ListRevision::Continue(token.clone())),
    ] {
        assert_eq!(options(query).list_revision(), Ok(want), "{query}");
    }
    for (query, message) in [
        (
            "resourceVersion=abc".into(),
            r#"invalid resource version: resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax"#,
        ),
        (
            "resourceVersion=-1&limit=1".into(),
            r#"invalid resource version: resourceVersion: Invalid value: "-1": strconv.ParseUint: parsing "-1": invalid syntax"#,
        ),
        (
            "continue=!!!&resourceVersion=5".into(),
            "invalid continue token: continue key is not valid: illegal base64 data at input byte 0",
        ),
        (
            format!("continue={}&resourceVersion=5", token.encode()),
            "specifying resource version is not allowed when using continue",
        ),
    ] {
        assert_eq!(options(&query).list_revision(), Err(bad_request(message)), "{query}");
    }
}

#[test]
fn a_bad_revision_of_a_get_or_watch_is_a_server_error_without_reason() {
    let status = options("watch=1&resourceVersion=abc").revision().unwrap_err();
    assert_eq!(
        status.to_json(),
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax","code":500}"#
    );
    assert_eq!(options("resourceVersion=12").revision(), Ok(ResourceVersion(12)));
    assert_eq!(options("").revision(), Ok(ResourceVersion::ZERO));
}

// === the recorded vectors ===

/// Runs every line of the file; a line of a kind not known here fails.
#[test]
fn vectors() {
    let file = String::from_utf8_lossy(include_bytes!("../../tests/data/list-options.txt"));
    let mut lines = file.lines().peekable();
    let (mut validated, mut others) = (0, 0);
    while let Some(line) = lines.next() {
        if line.starts_with("watch=") {
            let mut outcome = Vec::new();
            while let Some(line) = lines.next_if(|line| line.starts_with("   ")) {
                outcome.push(line.trim());
            }
            check_validation(line, &outcome);
            validated += 1;
        } else {
            check_text(line);
            others += 1;
        }
    }
    assert_eq!((validated, others), (13, 11), "the file has changed");
}

fn check_validation(input: &str, outcome: &[&str]) {
    let mut options = ListOptions::default();
    for pair in input.split(' ') {
        let (name, value) = pair.split_once('=').unwrap();
        let text = || serde_json::from_str::<String>(value).unwrap();
        match name {
            "watch" => options.watch = value.parse().unwrap(),
            "rv" => options.resource_version = text(),
            "rvm" => options.resource_version_match = text(),
            "continue" => options.continue_token = text(),
            "sendInitialEvents" => options.send_initial_events = (!value.is_empty()).then(|| value.parse().unwrap()),
            _ => panic!("unknown option in {input}"),
        }
    }
    let got = match options.validate() {
        Ok(()) => vec!["OK".to_owned()],
        Err(status) => {
            assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"), "{input}");
            let causes = status.details.unwrap().causes.into_iter().map(|cause| {
                let kind = match cause.reason.as_str() {
                    "FieldValueForbidden" => "Forbidden",
                    "FieldValueNotSupported" => "Unsupported value",
                    other => panic!("{input}: {other}"),
                };
                format!("CAUSE reason={kind} message={} field={}", cause.message, cause.field)
            });
            std::iter::once(format!("MSG: {}", status.message)).chain(causes).collect()
        }
    };
    assert_eq!(got, outcome, "{input}");
}

fn check_text(line: &str) {
    let parsed = line.split_once("parsing ").map(|(before, after)| {
        let (quoted, _) = after.rsplit_once(": ").unwrap();
        (before, serde_json::from_str::<String>(quoted).unwrap())
    });
    match parsed {
        Some((before, value)) if before.starts_with("resourceVersion: ") => {
            assert_eq!(parse_revision(&value), Err(line.into()));
        }
        Some(("strconv.ParseUint: ", value)) => assert_eq!(strconv::parse_uint(value.as_bytes()), Err(line.into())),
        Some(("strconv.ParseInt: ", value)) => assert_eq!(strconv::parse_int(value.as_bytes()), Err(line.into())),
        Some(_) => panic!("not understood: {line}"),
        None if line.starts_with('{') => check_token(line),
        None => {
            // Token, the bytes it holds (none if it is no base64), and the error of reading them.
            let (token, rest) = line.split_once(' ').unwrap();
            let error = if rest.starts_with("illegal base64") { rest } else { rest.split_once(' ').unwrap().1 };
            let error = match error {
                "<nil>" => "server does not recognize this encoded version ",
                error => error,
            };
            assert_eq!(ContinueToken::decode(token), Err(format!("continue key is not valid: {error}")), "{line}");
        }
    }
}

fn check_token(line: &str) {
    #[derive(serde::Deserialize)]
    struct Token {
        v: String,
        rv: i64,
        start: String,
    }
    let (json, text) = line.split_once(' ').unwrap();
    let Token { v, rv, start } = serde_json::from_str(json).unwrap();
    assert_eq!(v, "meta.k8s.io/v1");
    let key = start.strip_suffix('\0').unwrap();
    let token = ContinueToken { rv, start: format!("/{}", key.trim_start_matches('/')) };
    assert_eq!(ContinueToken::decode(text), Ok(token.clone()), "{line}");
    if key.starts_with('/') {
        assert_eq!(token.encode(), text, "{line}");
    }
}
