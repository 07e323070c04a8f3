use super::super::decode::scan_row;
use super::*;
use informerd_meta::FieldTable;

fn resource(group: &str, resource: &str, origin: Origin) -> Resource {
    Resource { origin, ..Resource::simple(group, resource, "K") }
}

fn definitions(columns: &[(&str, &str)]) -> Bytes {
    let column = |(name, kind): &(&str, &str)| serde_json::json!({"name": name, "type": kind, "format": "", "description": "d", "priority": 0});
    serde_json::to_vec(&columns.iter().map(column).collect::<Vec<_>>()).unwrap().into()
}

fn builtin(group: &str, name: &str, columns: &[&str]) -> Columns {
    let columns: Vec<_> = columns.iter().map(|name| (*name, "string")).collect();
    Columns::new(&resource(group, name, Origin::BuiltIn), &definitions(&columns)).unwrap()
}

fn custom(asked: &[(&str, &str, &str)]) -> Origin {
    let column = |(name, kind, path): &(&str, &str, &str)| PrinterColumn {
        name: (*name).into(),
        kind: (*kind).into(),
        json_path: (*path).into(),
    };
    Origin::Custom { selectable: [].into(), columns: asked.iter().map(column).collect(), definition: "".into() }
}

fn row(cells: &str, object: &str) -> Object {
    let text = format!(r#"{{"cells":{cells},"object":{object}}}"#);
    scan_row(&mut Scanner::new(text.as_bytes()), &FieldTable::default()).unwrap().0
}

fn object(created: &str, more: &str) -> String {
    format!(
        r#"{{"kind":"K","apiVersion":"v1","metadata":{{"name":"o","resourceVersion":"7","creationTimestamp":"{created}"}}{more}}}"#
    )
}

const CREATED: &str = "2024-01-01T00:00:00Z";

/// Printed this many seconds after [`CREATED`], by an exact clock.
fn printed(after: i64) -> Printed {
    let at = Moment::parse(CREATED).unwrap().plus(after);
    Printed { earliest: at, latest: at }
}

/// The relative times found in the row.
fn holes(columns: &Columns, cells: &str, object: &str, after: i64) -> Result<Vec<String>, Unprintable> {
    let mut row = row(cells, object);
    columns.resolve(&mut row, printed(after))?;
    let row = row.row().unwrap();
    let text =
        |hole: &Hole| String::from_utf8(row.head[hole.at.start as usize..hole.at.end as usize].to_vec()).unwrap();
    Ok(row.holes.iter().map(text).collect())
}

#[test]
fn a_time_behind_escapes_is_not_looked_for_in_their_text() {
    let columns = builtin("", "pods", &["Name", "Restarts"]);
    let ended =
        r#","status":{"containerStatuses":[{"lastState":{"terminated":{"finishedAt":"2024-01-01T00:00:00Z"}}}]}"#;
    let pod = object(CREATED, ended);
    assert_eq!(holes(&columns, r#"["o","3 (5m ago)"]"#, &pod, 300).unwrap(), ["5m"]);
    let refused = holes(&columns, r#"["o","\u0033 (5m ago)"]"#, &pod, 300).unwrap_err();
    assert!(matches!(refused, Unprintable::Cell { .. }), "{refused}");
}

#[test]
fn finds_what_tells_times() {
    let pods = builtin("", "pods", &["Name", "Ready", "Status", "Restarts", "Age", "Node"]);
    let status = format!(
        r#","status":{{"containerStatuses":[{{"name":"c","state":{{}},"lastState":{{"terminated":{{"finishedAt":"{CREATED}"}}}}}}]}}"#
    );
    let pod = object(CREATED, &status);
    let restarted = r#"["5m","1/1","Running","3 (5m ago)","5m","<none>"]"#;
    assert_eq!(holes(&pods, restarted, &pod, 300), Ok(vec!["5m".into(), "5m".into()]), "and a name is a name");
    assert_eq!(holes(&pods, r#"["o","1/1","Running","3","5m","n"]"#, &pod, 300), Ok(vec!["5m".into()]));
    let early = r#"["o","1/1","Running","0","\u003cinvalid\u003e","n"]"#;
    assert_eq!(holes(&pods, early, &pod, -60), Ok(vec!["\\u003cinvalid\\u003e".into()]));
    // Whoever may create events may give them any time.
    let events = builtin("", "events", &["Last Seen", "Name"]);
    let ahead = object(CREATED, r#","series":{"count":2,"lastObservedTime":"12345-06-07T08:09:10.000000Z"}"#);
    let invalid = || Ok(vec!["\\u003cinvalid\\u003e".into()]);
    assert_eq!(holes(&events, r#"["\u003cinvalid\u003e","o"]"#, &ahead, 300), invalid());
    let before = object(CREATED, r#","series":{"count":2,"lastObservedTime":"-29719-04-05T22:13:21.000000Z"}"#);
    assert_eq!(holes(&events, r#"["292y","o"]"#, &before, 300), Ok(vec!["292y".into()]));
}

#[test]
fn what_was_never_set_tells_nothing() {
    let jobs = builtin("batch", "jobs", &["Name", "Duration", "Age"]);
    let started = |more: &str| object(CREATED, &format!(r#","status":{{"startTime":"{CREATED}"{more}}}"#));
    let finished = started(r#","completionTime":"2024-01-01T00:00:30Z""#);
    assert_eq!(holes(&jobs, r#"["j","5m","5m"]"#, &started(""), 300).unwrap().len(), 2);
    assert_eq!(holes(&jobs, r#"["j","","5m"]"#, &object(CREATED, ""), 300).unwrap().len(), 1);
    // The duration of a finished job is fixed. It looks like a relative time, but the column is known.
    assert_eq!(holes(&jobs, r#"["j","30s","5m"]"#, &finished, 300), Ok(vec!["5m".into()]));
    let unset =
        r#"{"kind":"K","apiVersion":"v1","metadata":{"name":"o","resourceVersion":"7","creationTimestamp":null}}"#;
    let leases = builtin("coordination.k8s.io", "leases", &["Name", "Holder", "Age"]);
    assert_eq!(holes(&leases, r#"["l","5m","\u003cunknown\u003e"]"#, unset, 300), Ok(vec![]));
}

#[test]
fn what_contradicts_itself_is_not_believed() {
    let nodes = builtin("", "nodes", &["Name", "Status", "Age", "Novel"]);
    let node = object(CREATED, "");
    assert!(holes(&nodes, r#"["n","Ready","5m","v1"]"#, &node, 300).is_ok());
    for (cells, after) in [
        // The age of another object.
        (r#"["n","Ready","5m","v1"]"#, 900),
        (r#"["n","Ready","\u003cunknown\u003e","v1"]"#, 300),
        // A column that is not known contains a time.
        (r#"["n","Ready","5m","7h"]"#, 300),
        (r#"["n","Ready","5m","2 (7h ago)"]"#, 300),
        (r#"["n","Ready","5m","\u003cinvalid\u003e"]"#, 300),
    ] {
        let result = holes(&nodes, cells, &node, after);
        assert!(matches!(result, Err(Unprintable::Cell { .. })), "{cells}: {result:?}");
    }
    assert_eq!(holes(&nodes, r#"["n","Ready","5m"]"#, &node, 300), Err(Unprintable::Row(4)));
    assert_eq!(holes(&nodes, r#"["n","Ready","5m","v1",1]"#, &node, 300), Err(Unprintable::Row(4)));
}

#[test]
fn a_column_that_the_apiserver_forgets() {
    let addresses = builtin("networking.k8s.io", "ipaddresses", &["Name", "ParentRef"]);
    assert_eq!(holes(&addresses, r#"["10.0.0.1","s","5m"]"#, &object(CREATED, ""), 300), Ok(vec!["5m".into()]));
    let repaired = builtin("networking.k8s.io", "ipaddresses", &["Name", "ParentRef", "Age"]);
    assert_eq!(holes(&repaired, r#"["10.0.0.1","s","5m"]"#, &object(CREATED, ""), 300), Ok(vec!["5m".into()]));
}

#[test]
fn definitions_say_what_their_columns_are() {
    let asked = [
        ("When", "date", ".spec.when"),
        ("Every", "string", ".spec.every"),
        ("Age", "date", ".metadata.creationTimestamp"),
    ];
    let named = [("Name", "string"), ("When", "date"), ("Every", "string"), ("Age", "date")];
    let widgets = |asked, columns: &[(&str, &str)]| {
        Columns::new(&resource("x.y", "widgets", custom(asked)), &definitions(columns))
    };
    let columns = widgets(&asked, &named).unwrap();
    let widget = object(CREATED, &format!(r#","spec":{{"when":"{CREATED}","every":"10m"}}"#));
    assert_eq!(holes(&columns, r#"["w","5m","10m","5m"]"#, &widget, 300).unwrap().len(), 2);
    let broken = object(CREATED, r#","spec":{"when":"soon"}"#);
    assert_eq!(holes(&columns, r#"["w","\u003cinvalid\u003e",null,"5m"]"#, &broken, 300).unwrap().len(), 1);
    assert_eq!(holes(&columns, r#"["w",null,null,"5m"]"#, &object(CREATED, ""), 300).unwrap().len(), 1);
    // A definition without columns has an age column.
    assert!(widgets(&[], &[("Name", "string"), ("Age", "date")]).is_ok());
    for (asked, columns) in [
        (&asked[..], &named[..3]),
        (&asked[..2], &[("Name", "string"), ("Every", "string"), ("When", "date")][..]),
        (&asked[..1], &[("Name", "string"), ("When", "string")][..]),
        (&[("When", "date", ".spec.list[*]")][..], &[("Name", "string"), ("When", "date")][..]),
    ] {
        assert_eq!(widgets(asked, columns), Err(Unprintable::Definition), "{columns:?}");
    }
    let aggregated = resource("metrics.k8s.io", "pods", Origin::Unknown);
    assert_eq!(Columns::new(&aggregated, &definitions(&named)), Err(Unprintable::Definition));
}

#[test]
fn the_default_columns_have_no_empty_array() {
    assert!(builtin("rbac.authorization.k8s.io", "roles", &["Name", "Created At"]).null_when_empty);
    assert!(builtin("apiextensions.k8s.io", "customresourcedefinitions", &["Name", "Scope"]).null_when_empty);
    assert!(!builtin("", "pods", &["Name", "Age"]).null_when_empty);
    let definition = custom(&[("Created At", "date", ".metadata.creationTimestamp")]);
    let columns = definitions(&[("Name", "string"), ("Created At", "date")]);
    assert!(!Columns::new(&resource("x.y", "widgets", definition), &columns).unwrap().null_when_empty);
}

#[test]
fn clocks_may_differ_a_little() {
    let leases = builtin("coordination.k8s.io", "leases", &["Name", "Holder", "Age"]);
    let at = |from: i64, to: i64| {
        let created = Moment::parse(CREATED).unwrap();
        let mut row = row(r#"["l","h","100s"]"#, &object(CREATED, ""));
        leases.resolve(&mut row, Printed { earliest: created.plus(from), latest: created.plus(to) }).is_ok()
    };
    assert!(at(100, 100) && at(98, 102) && at(40, 100) && at(100, 160));
    assert!(!at(40, 99) && !at(102, 160));
    // A period of more than `TRIED` seconds is not accepted.
    assert!(!at(99, 99 + 2 * TRIED));
}
