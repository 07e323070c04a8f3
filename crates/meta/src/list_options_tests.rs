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
fn numbers_that_do_not_parse_are_invalid() {
    for query in ["limit=abc", "limit=", "timeoutSeconds", "limit=9223372036854775808", "limit=1.5", "limit=%ff"] {
        assert_eq!(ListOptions::decode(query), Err(Invalid), "{query}");
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
fn combinations() {
    let mut defaulted = options("watch=1&continue=x");
    defaulted.set_defaults();
    assert_eq!(defaulted.validate(), Err(Invalid));
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
    for query in [
        "resourceVersion=abc",
        "resourceVersion=-1&limit=1",
        "resourceVersion=%2B1",
        "resourceVersion=18446744073709551616",
        "continue=!!!&resourceVersion=5",
        &format!("continue={}&resourceVersion=5", token.encode()),
    ] {
        assert_eq!(options(query).list_revision(), Err(Invalid), "{query}");
    }
}

// === the recorded vectors ===

/// Runs every line of the file. A line of an unknown kind fails.
#[test]
fn vectors() {
    let file = String::from_utf8_lossy(include_bytes!("../../../tests/data/list-options.txt"));
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
    assert_eq!(options.validate().is_ok(), outcome == ["OK"], "{input}");
}

fn check_text(line: &str) {
    let parsed = line.split_once("parsing ").map(|(before, after)| {
        let (quoted, _) = after.rsplit_once(": ").unwrap();
        (before, serde_json::from_str::<String>(quoted).unwrap())
    });
    match parsed {
        Some((before, value)) if before.ends_with("strconv.ParseUint: ") => {
            assert_eq!(strconv::parse_uint(&value), None, "{line}");
        }
        Some(("strconv.ParseInt: ", value)) => assert_eq!(strconv::parse_int(value.as_bytes()), None, "{line}"),
        Some(_) => panic!("not understood: {line}"),
        None if line.starts_with('{') => check_token(line),
        // A token, its decoded bytes (none if it is not base64), and the error that Go reports for it.
        None => {
            let (token, _) = line.split_once(' ').unwrap();
            assert_eq!(ContinueToken::decode(token), Err(Invalid), "{line}");
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
