use std::time::Duration;

use super::*;
use crate::auth::attributes::Attributes;
use crate::meta::{RequestInfo, errors};

fn attributes(target: &str) -> Attributes {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Attributes::of("GET", path, query, &RequestInfo::parse("GET", path, query))
}

fn user() -> UserInfo {
    UserInfo { username: "u".into(), groups: vec!["g".into()], ..UserInfo::default() }
}

fn request<'a>(uri: &str, attributes: &'a Attributes, user: &'a UserInfo) -> Request<'a> {
    Request {
        audit_id: "id".into(),
        uri: uri.into(),
        attributes,
        user: Some(user),
        impersonated: None,
        source: Some([10, 0, 0, 1].into()),
        user_agent: "kubectl".into(),
        is_kept: false,
    }
}

fn rules(rules: &str) -> Policy {
    Policy::parse(&format!("kind: Policy\napiVersion: audit.k8s.io/v1\nrules: [{rules}]\n")).unwrap()
}

#[test]
fn the_first_rule_that_matches_decides() {
    for (policy, target, written) in [
        ("{level: Metadata}", "/api/v1/pods", true),
        ("{level: None}", "/api/v1/pods", false),
        ("{level: None, users: [other]}, {level: Request}", "/api/v1/pods", true),
        ("{level: Metadata, users: [other]}", "/api/v1/pods", false),
        ("{level: Metadata, userGroups: [x, g]}", "/api/v1/pods", true),
        ("{level: Metadata, verbs: [watch]}", "/api/v1/pods", false),
        ("{level: Metadata, verbs: [watch]}", "/api/v1/pods?watch=1", true),
        ("{level: Metadata, resources: [{group: ''}]}", "/api/v1/pods", true),
        ("{level: Metadata, resources: [{group: apps}]}", "/api/v1/pods", false),
        ("{level: Metadata, resources: [{group: '', resources: [secrets, pods]}]}", "/api/v1/pods", true),
        ("{level: Metadata, resources: [{group: '', resources: ['*']}]}", "/api/v1/pods", true),
        ("{level: Metadata, resources: [{group: '', resources: ['pods/*']}]}", "/api/v1/namespaces/a/pods/p/log", true),
        ("{level: Metadata, resources: [{group: '', resources: ['*/log']}]}", "/api/v1/namespaces/a/pods/p/log", true),
        ("{level: Metadata, resources: [{group: '', resources: ['*/log']}]}", "/api/v1/namespaces/a/pods/p", false),
        ("{level: Metadata, resources: [{group: '', resources: ['*/log']}]}", "/api/v1/namespaces/a/pods/p/x", false),
        ("{level: Metadata, resources: [{group: '', resources: [pods]}]}", "/api/v1/namespaces/a/pods/p/log", false),
        ("{level: Metadata, resources: [{group: '', resourceNames: [q], resources: [pods]}]}", "/api/v1/pods/p", false),
        ("{level: Metadata, namespaces: [a]}", "/x", false),
        ("{level: Metadata, resources: [{group: ''}]}", "/x", false),
        (
            "{level: Metadata, resources: [{group: '', resources: [pods], resourceNames: [p]}]}",
            "/api/v1/namespaces/a/pods?fieldSelector=metadata.name=p",
            true,
        ),
        ("{level: Metadata, namespaces: [a]}", "/api/v1/namespaces/a/pods", true),
        ("{level: Metadata, namespaces: [a]}", "/api/v1/pods", false),
        ("{level: Metadata, namespaces: ['']}", "/api/v1/nodes", true),
        ("{level: Metadata, nonResourceURLs: ['/x*']}", "/api/v1/pods", false),
        ("{level: Metadata, nonResourceURLs: ['/x*']}", "/x/y", true),
        ("{level: Metadata, nonResourceURLs: ['/x']}", "/x/y", false),
    ] {
        assert_eq!(rules(policy).decide(&user(), &attributes(target)).is_some(), written, "{policy} {target}");
    }
}

#[test]
fn what_is_no_policy() {
    for text in [
        "",
        "[]",
        "kind: Policy\napiVersion: audit.k8s.io/v1\nrules: []\n",
        "kind: Policy\napiVersion: audit.k8s.io/v1beta1\nrules: [{level: None}]\n",
        "kind: Policy\napiVersion: audit.k8s.io/v1\nrules: [{verbs: [get]}]\n",
        "kind: Policy\napiVersion: audit.k8s.io/v1\nrules: [{level: Everything}]\n",
    ] {
        assert!(Policy::parse(text).is_err(), "{text}");
    }
}

struct Log {
    audit: Audit,
    metrics: Arc<AuthMetrics>,
    hangups: Hangups,
    directory: tempfile::TempDir,
}

fn log(policy: Policy) -> Log {
    let directory = tempfile::tempdir().unwrap();
    let (metrics, hangups) = (Arc::<AuthMetrics>::default(), Hangups::default());
    let sink = LinesTo::File(directory.path().join("audit.log"));
    let audit = Audit::start(&AuditConfig { sink, policy }, &metrics, &hangups, &Fatal::new()).unwrap();
    Log { audit, metrics, hangups, directory }
}

impl Log {
    async fn lines(&self, wanted: u64) -> Vec<serde_json::Value> {
        while self.metrics.audit.written.get() < wanted {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let text = std::fs::read_to_string(self.directory.path().join("audit.log")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Writes so many more lines.
    async fn write(&self, lines: u64) {
        let all = self.metrics.audit.written.get() + lines;
        (0..lines).for_each(|_| write_line(&self.audit, "/api/v1/pods"));
        while self.metrics.audit.written.get() < all {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(self.metrics.audit.dropped.get(), 0);
    }

    /// The number of whole lines of a file.
    fn count(&self, name: &str) -> usize {
        let text = std::fs::read_to_string(self.directory.path().join(name)).unwrap();
        text.lines().filter(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()).count()
    }
}

/// Writes the line of a list of pods.
fn write_line(audit: &Audit, uri: &str) {
    let (user, pods) = (user(), attributes("/api/v1/pods"));
    audit.begin(|| request(uri, &pods, &user)).unwrap().complete(200);
}

#[tokio::test]
async fn an_event_is_the_apiservers() {
    let log = log(Policy::default());
    let (user, list) = (user(), attributes("/apis/apps/v1/namespaces/a/deployments?limit=1"));
    log.audit.begin(|| request("/apis/apps/v1/namespaces/a/deployments?limit=1", &list, &user)).unwrap().complete(200);
    log.lines(1).await;
    let text = std::fs::read_to_string(log.directory.path().join("audit.log")).unwrap();
    let (head, rest) = text.split_once(r#""requestReceivedTimestamp":""#).unwrap();
    assert_eq!(
        head,
        r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"id","stage":"ResponseComplete","requestURI":"/apis/apps/v1/namespaces/a/deployments?limit=1","verb":"list","user":{"username":"u","groups":["g"]},"sourceIPs":["10.0.0.1"],"userAgent":"kubectl","objectRef":{"resource":"deployments","namespace":"a","apiGroup":"apps","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200},"#
    );
    let (time, rest) = rest.split_once('"').unwrap();
    assert!(time.len() == 27 && time.ends_with('Z') && time.as_bytes()[19] == b'.', "{time}");
    assert!(
        rest.ends_with(
            "\"annotations\":{\"authorization.k8s.io/decision\":\"allow\",\"authorization.k8s.io/reason\":\"\"}}\n"
        ),
        "{rest}"
    );
}

#[tokio::test]
async fn refusals_and_streams() {
    let log = log(Policy::default());
    let (user, pods) = (user(), attributes("/api/v1/pods?watch=1"));
    let status = errors::forbidden(&pods.gvr(), "", "no");
    log.audit.begin(|| request("/api/v1/pods?watch=1", &pods, &user)).unwrap().refuse(&status);
    let stream = log.audit.begin(|| request("/api/v1/pods?watch=1", &pods, &user)).unwrap().start();
    let lines = log.lines(2).await;
    assert_eq!(lines[0]["responseStatus"]["code"], 403);
    assert_eq!(lines[0]["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!((&lines[1]["stage"], &lines[1]["verb"]), (&"ResponseStarted".into(), &"watch".into()));
    drop(stream);
    let lines = log.lines(3).await;
    assert_eq!(lines[2]["stage"], "ResponseComplete");
    assert_eq!(lines[1]["responseStatus"]["code"], 200);
    let at = |line: usize, time: &str| lines[line][time].as_str().unwrap().to_owned();
    assert!(at(2, "stageTimestamp") > at(1, "stageTimestamp"));
    let unknown = Request { user: None, ..request("/api/v1/pods", &pods, &user) };
    log.audit.begin(|| unknown).unwrap().complete(200);
    assert_eq!(log.lines(4).await[3]["user"]["username"], "system:unsecured");
}

/// A reader of the log can tell what nobody could confirm when it was read.
#[tokio::test]
async fn what_a_kept_decision_allows_says_so() {
    let log = log(Policy::default());
    let (user, pods) = (user(), attributes("/api/v1/pods?watch=1"));
    for is_kept in [false, true] {
        let request = Request { is_kept, ..request("/api/v1/pods?watch=1", &pods, &user) };
        drop(log.audit.begin(|| request).unwrap().start());
    }
    let kept = |line: &serde_json::Value| line["annotations"]["informerd.io/decision-kept"].as_str() == Some("true");
    let lines = log.lines(4).await;
    assert_eq!(lines.iter().map(kept).collect::<Vec<_>>(), [false, false, true, true]);
    assert!(lines.iter().all(|line| line["annotations"]["authorization.k8s.io/decision"] == "allow"));
}

#[tokio::test]
async fn stages_can_be_left_out() {
    let policy = "kind: Policy\napiVersion: audit.k8s.io/v1\nomitStages: [RequestReceived]\nrules: [{level: Metadata, omitStages: [ResponseStarted]}]\n";
    let log = log(Policy::parse(policy).unwrap());
    let (user, pods) = (user(), attributes("/api/v1/pods?watch=1"));
    drop(log.audit.begin(|| request("/api/v1/pods?watch=1", &pods, &user)).unwrap().start());
    let lines = log.lines(1).await;
    assert_eq!((lines.len(), &lines[0]["stage"]), (1, &"ResponseComplete".into()));
}

#[tokio::test]
async fn a_file_that_was_renamed_is_opened_again_as_soon_as_it_can_be() {
    use std::os::unix::fs::PermissionsExt;
    for is_in_the_way in [false, true] {
        let log = log(Policy::default());
        let path = log.directory.path().join("audit.log");
        log.write(20).await;
        std::fs::rename(&path, path.with_extension("old")).unwrap();
        // Without the signal, it is the same file.
        log.write(20).await;
        assert_eq!(log.count("audit.old"), 40);
        if is_in_the_way {
            std::fs::create_dir(&path).unwrap();
            log.hangups.send();
            log.write(20).await;
            // No further signal is needed.
            std::fs::remove_dir(&path).unwrap();
        } else {
            log.hangups.send();
        }
        log.write(20).await;
        let old = if is_in_the_way { 60 } else { 40 };
        assert_eq!((log.count("audit.old"), log.count("audit.log")), (old, 20));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "it is for the daemon's user alone");
    }
}

/// The device takes every byte for one too many.
#[tokio::test]
async fn a_full_disk_costs_the_lines_that_find_no_room_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let metrics = Arc::<AuthMetrics>::default();
    let config = AuditConfig { sink: LinesTo::File(path), policy: Policy::default() };
    let audit = Audit::start(&config, &metrics, &Hangups::default(), &Fatal::new()).unwrap();
    for n in 1..=20 {
        write_line(&audit, "/api/v1/pods");
        while metrics.audit.dropped.get() < n {
            assert_eq!(metrics.audit.written.get(), 0);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Requests of any length use a bounded amount of memory, and nobody waits. The writer runs on this single thread, so it
/// cannot run before all lines were offered.
#[tokio::test]
async fn long_requests_are_bounded() {
    let (many, log) = (log(Policy::default()), log(Policy::default()));
    (0..8200).for_each(|_| write_line(&many.audit, "/api/v1/pods"));
    assert_eq!(many.metrics.audit.dropped.get(), 8200 - 8192, "so many lines wait, and no more");
    assert_eq!(many.lines(8192).await.len(), 8192);
    let long = "x".repeat(1 << 20);
    (0..100).for_each(|_| write_line(&log.audit, &long));
    assert_eq!(log.metrics.audit.dropped.get(), 100 - 31, "32 MiB of them wait, and no more");
    let agent = |text: &[u8]| user_agent(&HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_bytes(text).unwrap())]));
    assert_eq!(agent("\u{e9}".repeat(1000).as_bytes()), "\u{e9}".repeat(512) + "...TRUNCATED");
    assert_eq!(agent(&[b'x'; 700_000]), "x".repeat(1024) + "...TRUNCATED");
    assert_eq!((agent(&[b'x'; 1024]), agent(b"\xff")), ("x".repeat(1024), "\u{fffd}".to_owned()));
    assert_eq!(user_agent(&HeaderMap::new()), "");
}
