use serde_json::json;

use super::*;

const EARLY: &str = "2024-01-01T00:00:00Z";
const LATE: &str = "2024-06-01T00:00:00.000001Z";

fn found(time: &Time, object: &Value) -> Option<&'static str> {
    let moment = match time.find(object) {
        CellTime::At(moment) => moment,
        CellTime::Nothing => return None,
        CellTime::Over => return Some("over"),
    };
    let name = [EARLY, LATE].into_iter().find(|text| Moment::parse(text) == Some(moment));
    Some(name.unwrap_or("another"))
}

#[test]
fn columns_have_times() {
    let time = |group: &str, resource: &str, column: &str| Time::of(&Gvr::new(group, "v1", resource), column);
    assert_eq!(time("", "pods", "Age"), Some(Time::Creation));
    assert_eq!(time("", "pods", "Restarts"), Some(Time::LastRestart));
    assert_eq!(time("events.k8s.io", "events", "Last Seen"), Some(Time::LastSeen));
    assert_eq!(time("batch", "jobs", "Duration"), Some(Time::JobStart));
    assert_eq!(time("", "nodes", "Restarts"), None);
    assert_eq!(time("", "nodes", "Version"), None);
    for (group, resource, column) in [("", "pods", "Restarts"), ("", "pods", "Age"), ("batch", "jobs", "Duration")] {
        assert!(time(group, resource, column).is_some() && !is_static(column), "{column}");
    }
    assert!(STATIC.is_sorted(), "so that it can be read");
}

#[test]
fn simple_times() {
    let of = |path: &str| Time::At(Path::parse(path).unwrap());
    for (time, object, want) in [
        (Time::Creation, json!({"metadata": {"creationTimestamp": EARLY}}), Some(EARLY)),
        (Time::Creation, json!({"metadata": {"creationTimestamp": null}}), None),
        (Time::Creation, json!({"metadata": {"creationTimestamp": "0001-01-01T00:00:00Z"}}), None),
        (of(".spec.at"), json!({"spec": {"at": LATE}}), Some(LATE)),
        (of(".spec.at"), json!({"spec": {"at": "soon"}}), None),
        (of(".spec.at"), json!({"spec": {"at": "0000-01-01T00:00:00Z"}}), Some("another")),
        (of(".spec.at"), json!({"spec": {"at": "0001-01-01T00:00:00Z"}}), None),
        (of(".spec.at"), json!({"spec": {"at": 7}}), None),
        (Time::JobStart, json!({"status": {"startTime": EARLY}}), Some(EARLY)),
        (Time::JobStart, json!({"status": {"startTime": EARLY, "completionTime": LATE}}), Some("over")),
        (Time::JobStart, json!({"status": {}}), None),
        (Time::LastSchedule, json!({"status": {"lastScheduleTime": EARLY}}), Some(EARLY)),
        (Time::TaintAdded, json!({"spec": {"taint": {"timeAdded": EARLY}}}), Some(EARLY)),
    ] {
        assert_eq!(found(&time, &object), want, "{time:?} of {object}");
    }
}

#[test]
fn events_were_seen() {
    for (event, first, last) in [
        (json!({"firstTimestamp": EARLY, "lastTimestamp": LATE}), Some(EARLY), Some(LATE)),
        (json!({"deprecatedFirstTimestamp": EARLY, "deprecatedLastTimestamp": LATE}), Some(EARLY), Some(LATE)),
        (json!({"firstTimestamp": EARLY, "lastTimestamp": null}), Some(EARLY), Some(EARLY)),
        (json!({"firstTimestamp": null, "lastTimestamp": null, "eventTime": LATE}), Some(LATE), Some(LATE)),
        (json!({"eventTime": EARLY, "series": {"lastObservedTime": LATE}}), Some(EARLY), Some(LATE)),
        (json!({"lastTimestamp": EARLY, "series": {"lastObservedTime": null}}), None, None),
        (json!({}), None, None),
    ] {
        assert_eq!((found(&Time::FirstSeen, &event), found(&Time::LastSeen, &event)), (first, last), "{event}");
    }
}

#[test]
fn requests_were_completed() {
    let condition = |of: &str, status: &str, at: &str| json!({"type": of, "status": status, "lastTransitionTime": at});
    let (complete, failed) = (condition("Complete", "True", EARLY), condition("Failed", "True", LATE));
    for (conditions, want) in [
        (json!([complete]), Some(EARLY)),
        (json!([condition("Complete", "False", EARLY)]), None),
        (json!([failed]), None),
        (json!([failed, complete]), None),
        (json!([complete, failed]), Some(EARLY)),
    ] {
        assert_eq!(found(&Time::Completed, &json!({"status": {"conditions": conditions}})), want, "{conditions}");
    }
}

#[test]
fn pods_were_restarted() {
    let ended = |at: &str| json!({"terminated": {"exitCode": 1, "finishedAt": at}});
    let (side, once) = (json!({"name": "side", "restartPolicy": "Always"}), json!({"name": "once"}));
    let status = |name: &str, state: Value, at: &str| json!({"name": name, "started": true, "state": state, "lastState": ended(at)});
    let running = json!({"running": {}});
    let (waiting, done) = (json!({"waiting": {"reason": "X"}}), json!({"terminated": {"exitCode": 0}}));
    let pod = |init: Value, containers: Value, initialized: &str| {
        json!({
            "spec": {"initContainers": [side, once]},
            "status": {
                "initContainerStatuses": init,
                "containerStatuses": containers,
                "conditions": [{"type": "Initialized", "status": initialized}],
            },
        })
    };
    let none = json!([]);
    for (pod, want) in [
        (
            pod(none.clone(), json!([status("a", running.clone(), EARLY), status("b", running.clone(), LATE)]), "True"),
            Some(LATE),
        ),
        (pod(none.clone(), json!([{"name": "a", "state": running, "lastState": {}}]), "True"), None),
        // While the pod initializes, terminated init containers count.
        (
            pod(json!([status("once", waiting.clone(), LATE)]), json!([status("a", waiting.clone(), EARLY)]), "False"),
            Some(LATE),
        ),
        // Afterwards they do not count, unless they are restartable.
        (
            pod(json!([status("once", done.clone(), LATE)]), json!([status("a", running.clone(), EARLY)]), "True"),
            Some(EARLY),
        ),
        (
            pod(json!([status("side", running.clone(), LATE)]), json!([status("a", running.clone(), EARLY)]), "True"),
            Some(LATE),
        ),
        // The search ends at the first init container that has not run yet.
        (
            pod(
                json!([status("once", waiting.clone(), EARLY), status("side", running.clone(), LATE)]),
                none.clone(),
                "False",
            ),
            Some(EARLY),
        ),
        (
            pod(
                json!([status("side", running.clone(), EARLY), status("once", waiting.clone(), LATE)]),
                none.clone(),
                "False",
            ),
            Some(LATE),
        ),
        // The pod was initialized before and initializes again.
        (pod(json!([status("once", waiting, LATE)]), json!([status("a", running, EARLY)]), "True"), Some(EARLY)),
    ] {
        assert_eq!(found(&Time::LastRestart, &pod), want, "{pod}");
    }
    assert_eq!(Time::LastRestart.part("3 (5m ago)"), Some("5m"));
    assert_eq!(Time::LastRestart.part("3"), None);
}
