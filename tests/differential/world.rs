//! The two servers and the objects that the harness makes at the first one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::axes;
use super::kinds::{GADGETS, KINDS, Kind, WIDGETS_V1};
use super::wire::{Answer, Ask, Endpoint};

/// The namespaces of the harness; the second sorts before what is in the first, the last two are alike at the start.
pub(crate) const NAMESPACES: [&str; 4] = ["diff-a", "diff-a-b", "diff-foo", "diff-foobar"];
/// One that is being deleted.
const ENDING: &str = "diff-ending";
/// The one with most of the objects.
pub(crate) const A: &str = "diff-a";

/// No answer takes longer than this unless something is broken, on a busy machine either.
pub(crate) const BOUND: Duration = Duration::from_secs(60);

/// Two endpoints that are to be the same, with the state they are asked about.
pub(crate) struct World {
    /// The kube-apiserver itself, and what stands in front of it.
    pub pair: [Endpoint; 2],
    /// Nobody writes but the harness.
    pub still: bool,
    /// Nothing has happened in it yet but what set it up, so that more is known of answers than that they are equal.
    pub pristine: bool,
    /// Both speak HTTP/2, too.
    pub http2: bool,
    /// The newest revision, at which both are.
    now: AtomicU64,
    /// Revisions of the past that both can still show, in order.
    pub history: Vec<u64>,
}

// === impl World ===

impl World {
    /// Makes the objects, with some changes to them while both sides look on.
    pub(crate) async fn set_up(pair: [Endpoint; 2], still: bool) -> Result<Self, String> {
        let mut world = Self { pair, still, pristine: still, http2: true, now: AtomicU64::new(0), history: Vec::new() };
        world.definitions().await?;
        for (n, namespace) in NAMESPACES.into_iter().enumerate() {
            let app = ["x", "y"][n % 2];
            let labels = json!({"app": app, "n": (n * 7).to_string()});
            world.create("/api/v1/namespaces", &json!({"metadata": {"name": namespace, "labels": labels}})).await?;
        }
        if still {
            // Nobody completes its end.
            world.create("/api/v1/namespaces", &json!({"metadata": {"name": ENDING}})).await?;
            world.delete(&format!("/api/v1/namespaces/{ENDING}")).await?;
        }
        // Nothing of the past is asked of what starts only now. Tables start with repeated use.
        for [accept, _] in axes::ENCODINGS.iter().chain([&axes::ENCODINGS[4]; 2]) {
            let asks = KINDS.iter().map(|kind| {
                let list = format!("{}/{}?resourceVersion=0&limit=1", kind.root, kind.plural);
                let (ask, world) = (Ask::get(list).header("Accept", accept), &world);
                async move { world.pair[1].ask(&ask, BOUND).await }
            });
            try_join_all(asks).await.map_err(|error| error.to_string())?;
        }
        for kind in KINDS {
            for (namespace, object) in (kind.objects)() {
                world.create(&kind.collection(namespace), &object).await?;
            }
        }
        world.make_history().await?;
        world.settle().await?;
        Ok(world)
    }

    /// The same world as another pair of servers shows it.
    pub(crate) fn seen_by(&self, pair: [Endpoint; 2], http2: bool) -> Self {
        Self {
            pair,
            still: self.still,
            pristine: false,
            http2,
            now: AtomicU64::new(self.now()),
            history: self.history.clone(),
        }
    }

    /// The same world with changes that the apiserver's own watch cache has for sure: it drops those that are older than 75 seconds,
    /// and a daemon does not.
    pub(crate) async fn with_recent_history(&self) -> Result<Self, String> {
        let mut recent = self.seen_by(self.pair.clone(), self.http2);
        recent.history.clear();
        recent.make_history().await?;
        self.settle().await?;
        recent.settle().await?;
        Ok(recent)
    }

    /// The newest revision when the world last came to rest.
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// A text with its revisions: `{now}`, `{next}` and `{far}`, and for `{old}` one of several.
    pub(crate) fn told(&self, text: &str, which: usize) -> String {
        let now = self.now();
        let old = self.history.get(which % self.history.len().max(1)).unwrap_or(&now);
        text.replace("{now}", &now.to_string())
            .replace("{old}", &old.to_string())
            .replace("{next}", &(now + 1).to_string())
            .replace("{far}", &(now + 100_000).to_string())
    }

    /// A target as it is sent to one side: with its `{authority}` and its `{token}`, and in base64 what follows `b64:`.
    pub(crate) fn target(&self, text: &str, which: usize, side: &Endpoint, token: &str) -> String {
        let mut target = self.told(text, which).replace("{token}", token).replace("{authority}", side.authority());
        while let Some((before, rest)) = target.split_once("b64:") {
            let end = rest.find('&').unwrap_or(rest.len());
            target = format!("{before}{}{}", URL_SAFE_NO_PAD.encode(&rest[..end]), &rest[end..]);
        }
        target
    }

    pub(crate) fn direct(&self) -> &Endpoint {
        &self.pair[0]
    }

    /// The apiserver's answer. It is asked again while it says 429, as clients do: each of its caches of custom resources is
    /// away for a moment after their definition was changed.
    async fn patient(&self, ask: &Ask) -> Result<Answer, String> {
        let bound = Instant::now() + BOUND;
        loop {
            let answer = self.direct().ask(ask, BOUND).await.map_err(|error| format!("{}: {error}", ask.target))?;
            if answer.status != 429 || Instant::now() > bound {
                return Ok(answer);
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// An answer of the apiserver that has to be a success.
    pub(crate) async fn direct_json(&self, ask: &Ask) -> Result<Value, String> {
        let answer = self.patient(ask).await?;
        let good = (200..300).contains(&answer.status);
        if good { Ok(answer.json()) } else { Err(format!("{}: {} {}", ask.target, answer.status, answer.text())) }
    }

    /// Creates an object at the apiserver, and its status where it has one; there is no harm in it being there already.
    pub(crate) async fn create(&self, collection: &str, object: &Value) -> Result<(), String> {
        let ask = Ask::method("POST", collection).body("application/json", object.to_string());
        let answer = self.patient(&ask).await?;
        if !matches!(answer.status, 200 | 201 | 409) {
            return Err(format!("{collection}: {} {}", answer.status, answer.text()));
        }
        let (name, status) = (&object["metadata"]["name"], &object["status"]);
        if let (Some(name), false) = (name.as_str(), status.is_null()) {
            self.patch(&format!("{collection}/{name}/status"), &json!({"status": status})).await?;
        }
        Ok(())
    }

    /// Changes an object at the apiserver; returns its new revision.
    pub(crate) async fn patch(&self, object: &str, patch: &Value) -> Result<u64, String> {
        let ask = Ask::method("PATCH", object).body("application/merge-patch+json", patch.to_string());
        Ok(rv(&self.direct_json(&ask).await?))
    }

    pub(crate) async fn delete(&self, object: &str) -> Result<(), String> {
        self.direct_json(&Ask::method("DELETE", object)).await.map(drop)
    }

    async fn definitions(&self) -> Result<(), String> {
        for definition in [super::kinds::widgets(), super::kinds::gadgets()] {
            self.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?;
        }
        for kind in [WIDGETS_V1, GADGETS] {
            self.until_served(&kind.collection(None)).await?;
        }
        Ok(())
    }

    /// Until the apiserver lists it, from a cache that is ready.
    pub(crate) async fn until_served(&self, collection: &str) -> Result<(), String> {
        let bound = Instant::now() + BOUND;
        loop {
            let ask = Ask::get(format!("{collection}?resourceVersion=0"));
            match self.direct().ask(&ask, BOUND).await {
                Ok(answer) if answer.status == 200 => return Ok(()),
                _ if Instant::now() > bound => return Err(format!("{collection} is not served after 60 s")),
                _ => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Some changes to every kind, each with a revision that can be asked for.
    async fn make_history(&mut self) -> Result<(), String> {
        for round in 0..4 {
            for kind in KINDS.iter().filter(|kind| !kind.objects().is_empty()) {
                let (namespace, object) = &kind.objects()[0];
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let path = format!("{}/{name}", kind.collection(*namespace));
                let patch = json!({"metadata": {"labels": {"round": round.to_string()}}});
                self.history.push(self.patch(&path, &patch).await?);
            }
        }
        Ok(())
    }

    /// Brings both sides to the newest revision of every kind. Where the world moves, to one that both know.
    pub(crate) async fn settle(&self) -> Result<(), String> {
        // What the harness has begun may still be under way at the server.
        let bound = Instant::now() + BOUND;
        while !self.is_settled().await? {
            if Instant::now() > bound {
                return Err("somebody writes all the time".to_owned());
            }
            sleep(Duration::from_millis(500)).await;
        }
        Ok(())
    }

    async fn is_settled(&self) -> Result<bool, String> {
        let newest = KINDS.iter().map(|kind| async move {
            let list = Ask::get(format!("{}/{}?limit=1", kind.root, kind.plural));
            self.direct_json(&list).await.map(|list| rv(&list))
        });
        let now = try_join_all(newest).await?.into_iter().max().unwrap_or(0);
        self.now.store(now, Ordering::Relaxed);
        let settled = try_join_all(KINDS.iter().map(|kind| self.settle_kind(kind, now))).await?;
        Ok(settled.into_iter().all(|settled| settled))
    }

    /// False if there was a newer revision meanwhile, where there should be none.
    async fn settle_kind(&self, kind: &Kind, now: u64) -> Result<bool, String> {
        let bound = Instant::now() + BOUND;
        loop {
            let ask = Ask::get(format!("{}/{}?resourceVersion={now}", kind.root, kind.plural));
            let mut reached = Vec::new();
            for endpoint in &self.pair {
                let answer = endpoint.ask(&ask, BOUND).await.map_err(|error| error.to_string())?;
                reached.push(rv(&answer.json()));
            }
            if self.still && reached.iter().any(|at| *at > now) {
                return Ok(false);
            }
            if reached.iter().all(|at| *at >= now) {
                return Ok(true);
            }
            if Instant::now() > bound {
                return Err(format!("{}: at {reached:?} after 60 s, and not at {now}", kind.row));
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Both answers, asked for at the same time.
    pub(crate) async fn ask(&self, asks: &[Ask; 2], bound: Duration) -> [std::io::Result<Answer>; 2] {
        let (direct, through) = tokio::join!(self.pair[0].ask(&asks[0], bound), self.pair[1].ask(&asks[1], bound));
        [direct, through]
    }

    /// Both answers over HTTP/2, asked for at the same time.
    pub(crate) async fn ask_http2(&self, asks: &[Ask; 2], bound: Duration) -> [std::io::Result<Answer>; 2] {
        let [direct, through] = &self.pair;
        let (direct, through) = tokio::join!(direct.http2().ask(&asks[0], bound), through.http2().ask(&asks[1], bound));
        [direct, through]
    }

    /// The newest revision of the store. Whatever was opened before begins no later.
    pub(crate) async fn newest(&self) -> Result<u64, String> {
        self.direct_json(&Ask::get("/api/v1/namespaces?limit=1")).await.map(|list| rv(&list))
    }

    /// Removes what was made, from a cluster that goes on.
    pub(crate) async fn tear_down(&self) {
        let mut paths = Vec::new();
        for kind in KINDS {
            for (namespace, object) in kind.objects() {
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                paths.push(format!("{}/{name}", kind.collection(namespace)));
            }
        }
        paths.extend(NAMESPACES.map(|namespace| format!("/api/v1/namespaces/{namespace}")));
        for name in ["widgets", "gadgets"] {
            let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            paths.push(format!("{crds}/{name}.{}", super::kinds::GROUP));
        }
        for path in paths {
            if let Err(error) = self.delete(&path).await {
                println!("not removed: {error}");
            }
        }
    }
}

impl Kind {
    pub(crate) fn objects(&self) -> Vec<(Option<&'static str>, Value)> {
        (self.objects)()
    }
}

/// The revision of an object or a list; 0 if it has none.
pub(crate) fn rv(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().and_then(|rv| rv.parse().ok()).unwrap_or(0)
}

/// `namespace/name`
pub(crate) fn key(object: &Value) -> String {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("namespace"), text("name"))
}
