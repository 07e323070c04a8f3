//! A scripted apiserver decides, and the audit log tells what was decided.

use std::time::Duration;

use parking_lot::Mutex;
use tonic::Code;

use super::super::status::failure;
use super::*;
use crate::apiserver::testing::FakeServer;
use crate::auth::AuthConfig;
use crate::auth::audit::{AuditConfig, Policy};
use crate::auth::testing::{self, Rights, allowing, bearer};
use crate::codec::Shape;
use crate::grpc::testing::call;
use crate::lifecycle::Fatal;
use crate::lifecycle::signals::Hangups;
use crate::memory::Pressure;
use crate::reads::{Filter, WantedEncoding};
use crate::telemetry::lines::LinesTo;

struct World {
    rights: Arc<Rights>,
    access: Access,
    ledger: Ledger,
    audit: Audit,
    told: Arc<Told>,
    directory: tempfile::TempDir,
    _server: FakeServer,
}

#[derive(Debug, Default)]
struct Told(Mutex<Vec<String>>);

impl UserObserver for Told {
    fn is(&self, user: &str) {
        self.0.lock().push(user.to_owned());
    }

    fn is_kept(&self) {
        self.0.lock().push("is kept".to_owned());
    }

    fn leave(&self) {
        self.0.lock().push("leaves".to_owned());
    }
}

impl World {
    async fn new() -> Self {
        let given = [("jane", "a"), ("jane", "b"), ("jane", "c"), ("joe", "")];
        let (rights, access, server) = allowing(&given, &AuthConfig::default()).await;
        rights.tokens.lock().insert("bad", serde_json::json!({}));
        let directory = tempfile::tempdir().unwrap();
        let sink = LinesTo::File(directory.path().join("log"));
        let config = AuditConfig { sink, policy: Policy::default() };
        let audit = Audit::start(&config, access.metrics(), &Hangups::default(), &Fatal::new()).unwrap();
        let ledger = Ledger::new(1 << 20, Pressure::default());
        Self { rights, access, ledger, audit, told: Arc::default(), directory, _server: server }
    }

    fn caller(&self, mode: Mode, token: &str, audit_id: &str) -> Caller {
        let call = CallInfo {
            audit: self.audit.clone(),
            audit_id: audit_id.to_owned(),
            connection: 7,
            source: Some([10, 0, 0, 1].into()),
            known: Some(self.told.clone()),
            ..call("/informerd.v1.Objects/Watch")
        };
        let headers = bearer(token);
        let caller = auth::Caller { mode, certificates: None, headers: &headers, may_impersonate: false };
        Caller::new(self.access.clone(), call, &caller, &self.ledger).unwrap()
    }

    async fn ask(&self, token: &str, verb: Verb, filters: &[(&str, Vec<String>)]) -> Result<Grants, Status> {
        authorize(&self.caller(Mode::Delegated, token, "id"), verb, &mut selection(filters)).await
    }

    /// The lines of the audit log, once there are so many.
    async fn logged(&self, count: u64) -> Vec<String> {
        let written = &self.access.metrics().audit.written;
        let all = async {
            while written.get() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), all).await.expect("they are written");
        let path = self.directory.path().join("log");
        let text = std::fs::read_to_string(&path).unwrap();
        let short = |line: &str| {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            let text =
                |pointer: &str| event.pointer(pointer).and_then(|value| value.as_str()).unwrap_or("-").to_owned();
            let (stage, user, place) = (text("/stage"), text("/user/username"), text("/objectRef/namespace"));
            format!("{stage} {user} {place} {}", event["responseStatus"]["code"])
        };
        text.lines().map(short).collect()
    }
}

fn selection(filters: &[(&str, Vec<String>)]) -> Selection {
    let filter = |(namespace, names): &(&str, Vec<String>)| Filter {
        namespace: (!namespace.is_empty()).then(|| (*namespace).into()),
        names: names.clone(),
        ..Filter::default()
    };
    let filters = filters.iter().map(filter).collect();
    Selection {
        gvr: Gvr::new("", "v1", "pods"),
        filters,
        shape: Shape::Full,
        encoding: WantedEncoding::Any,
        identified: false,
    }
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|name| format!("n{name}")).collect()
}

#[tokio::test]
async fn each_part_of_a_selection_has_its_own_permission_and_line() {
    let world = World::new().await;
    for (mode, is_identified) in [(Mode::Delegated, true), (Mode::Trust, false)] {
        let mut selection = selection(&[("a", names(0))]);
        authorize(&world.caller(mode, "jane", "id"), Verb::Get, &mut selection).await.unwrap();
        assert_eq!(selection.identified, is_identified);
    }
    assert_eq!(*world.told.0.lock(), ["jane"], "nobody is known on a trusted listener");
    let rights_held = || world.access.metrics().rights_held.get();
    for (filters, verb, parts, rights) in [
        (vec![("a", names(0))], Verb::Get, 1, 0),
        (vec![("a", names(0)), ("b", names(0)), ("a", names(0))], Verb::List, 2, 2),
        (vec![("a", names(0))], Verb::Watch, 1, 1),
        (vec![("a", names(MAX_NAMES))], Verb::Get, MAX_NAMES, 0),
        (vec![("a", [names(MAX_NAMES), names(1)].concat())], Verb::Get, MAX_NAMES, 0),
        (vec![("a", names(MAX_NAMES + 1))], Verb::Get, 1, 0),
    ] {
        let grants = world.ask("jane", verb, &filters).await.unwrap();
        assert_eq!((grants.username(), grants.audit_entries.len()), (Some("jane"), parts), "{filters:?}");
        assert_eq!(rights_held(), rights, "{filters:?} {verb:?}");
    }
    let refused = world.ask("jane", Verb::List, &[("a", names(0)), ("z", names(0))]).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(world.logged(1).await, ["ResponseComplete jane z 403"]);
    let nothing = world.ask("joe", Verb::List, &[]).await.unwrap_err();
    assert_eq!(nothing.code(), Code::InvalidArgument, "nothing was checked, so nothing is allowed");
    let caller = world.caller(Mode::Delegated, "joe", "id");
    let _open = authorize_call(&caller).await.unwrap();
    assert_eq!(rights_held(), 1, "a call about the daemon may last");
    let metrics = Arc::default();
    assert!(caller.enter(&metrics).await.is_ok());
    // What is kept of its head counts in the share of its user.
    let most = world.ledger.limit() / 8 * 3 - caller.0.held.as_ref().unwrap().bytes();
    let held = [most, 1].map(|bytes| world.ledger.reserve(bytes).unwrap());
    assert!(caller.charge(&held[0]).is_ok() && caller.charge(&held[1]).is_err());
    assert_eq!(metrics.overflows.get(), 1);
    drop(held);
    let bad = world.caller(Mode::Delegated, "bad", "id").enter(&metrics).await.unwrap_err();
    assert_eq!((bad.code(), &*world.logged(2).await[1]), (Code::Unauthenticated, "ResponseComplete  - 401"));

    assert!(matches!(caller.client(), Client::Address(_)));
    assert!(matches!(caller.paying().await, Client::User(_)));
    let unknown = world.caller(Mode::Delegated, "bad", "id").paying().await;
    assert!(matches!(unknown, Client::Address(_)), "its token was not accepted");
    let trusted = world.caller(Mode::Trust, "joe", "id");
    assert_eq!((trusted.client(), trusted.paying().await), (Client::Connection(7), Client::Connection(7)));
    let used = |audit_id: &str| {
        let before = world.ledger.used();
        let caller = world.caller(Mode::Delegated, "jane", audit_id);
        let kept = caller.0.held.as_ref().unwrap().bytes();
        assert_eq!(world.ledger.used() - before, kept);
        kept
    };
    assert_eq!(used("a long audit id"), used("id") + "a long audit ".len());
}

#[tokio::test]
async fn what_is_read_together_ends_together_and_each_part_is_logged() {
    let world = World::new().await;
    let ask = async |namespace| world.ask("jane", Verb::Watch, &[(namespace, names(0))]).await.unwrap();
    ask("a").await.complete();
    let refused: Result<(), _> = Err(Error::status(meta::errors::unauthorized()));
    assert_eq!(ask("b").await.recorded(refused).unwrap_err().code(), Code::Unauthenticated);
    let _sent = ask("c").await.send();
    let lines = world.logged(3).await;
    assert_eq!(lines, ["ResponseComplete jane a 200", "ResponseComplete jane b 401", "ResponseComplete jane c 200"]);

    let before = world.ledger.used();
    let grants = Grants::join([ask("a").await, ask("b").await, ask("c").await]);
    assert!(world.ledger.used() > before, "the credentials are kept for as long as the stream is open");
    let mut right = grants.open();
    let is_gone = std::future::poll_fn(|cx| Poll::Ready(right.poll_gone(cx).is_ready())).await;
    assert!(!is_gone && world.logged(6).await[3..].iter().all(|line| line.starts_with("ResponseStarted jane ")));
    world.rights.given.lock().remove(&testing::right("jane", "b"));
    testing::change(&world.access, "b");
    let gone = tokio::time::timeout(Duration::from_secs(60), std::future::poll_fn(|cx| right.poll_gone(cx)));
    assert_eq!(Status::from(gone.await.expect("it ends")).code(), Code::PermissionDenied);
    drop(right);
    assert!(world.logged(9).await[6..].iter().all(|line| line.starts_with("ResponseComplete jane ")));
    assert_eq!(world.ledger.used(), before);
}

/// Its client has lost no right. It asks again, perhaps somebody else.
#[tokio::test]
async fn what_nobody_can_confirm_ends_as_unavailable_and_its_connection_takes_no_more_calls() {
    let told = Arc::<Told>::default();
    let (unsaid, gone) = tokio::sync::oneshot::channel();
    let mut right = Right::new(Vec::new(), Box::default(), None, Some(told.clone()));
    right.lease = Lease::until(gone);
    let is_gone = std::future::poll_fn(|cx| Poll::Ready(right.poll_gone(cx).is_ready())).await;
    assert!(!is_gone && told.0.lock().is_empty());
    drop(unsaid);
    let status = Status::from(std::future::poll_fn(|cx| right.poll_gone(cx)).await);
    assert_eq!((status.code(), failure(&status).1.is_some()), (Code::Unavailable, true), "it says when to come back");
    assert_eq!(*told.0.lock(), ["leaves"]);
}
