//! Programs as the requests that they send, recorded from the real ones, and what sends them again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http::Method;
use serde_json::{Value, json};

use crate::session::{
    CONTROLLER, DESCHEDULER, DISCOVERY, HTTPX, JSON, K9S, KUBECTL, Program, Session, Side, Stream, TABLE,
};
use crate::{Pattern, world};

pub(super) struct Recorded {
    program: &'static Program,
    begin: &'static [Step],
    rounds: usize,
    /// What it does in each round.
    round: &'static [Step],
}

enum Step {
    /// Its path and what it accepts.
    Read(&'static str, &'static str),
    /// client-go's informer with a watch-list.
    WatchList(&'static str),
    /// client-go's informer without one: a list from the cache, and a watch.
    ListAndWatch(&'static str),
    /// A get of a Deployment, an update of its status, and the event of that in the first informer.
    UpdateStatus,
    /// A ConfigMap is changed by somebody who talks to the kube-apiserver.
    OtherWrite,
    /// Milliseconds.
    Pause(u64),
}

/// Five lists by a client that sends a token.
pub(super) const TOKEN: Recorded =
    Recorded { program: &HTTPX, begin: &[], rounds: 5, round: &[Step::Read("/api/v1/pods", JSON), Step::Pause(1_000)] };
const GZIP: Recorded = Recorded {
    program: &KUBECTL,
    begin: &[],
    rounds: 30,
    round: &[Step::OtherWrite, Step::Read("/api/v1/pods", JSON), Step::Pause(300)],
};
const LOOP: Recorded = Recorded {
    program: &CONTROLLER,
    begin: &[Step::ListAndWatch("/apis/apps/v1/deployments")],
    rounds: 100,
    round: &[Step::UpdateStatus, Step::Pause(50)],
};
const K9S_PODS: Recorded = Recorded {
    program: &K9S,
    begin: &[
        Step::Read("/version", JSON),
        Step::Read("/api", DISCOVERY),
        Step::Read("/apis", DISCOVERY),
        Step::WatchList("/api/v1/namespaces"),
        Step::WatchList("/api/v1/namespaces/shop/pods"),
    ],
    rounds: 10,
    round: &[Step::Read("/api/v1/namespaces/shop/pods", TABLE), Step::Pause(2_000)],
};
/// A dry run: eight informers, and the end of the program.
pub(super) const DRY_RUN: Recorded = Recorded {
    program: &DESCHEDULER,
    begin: &[
        Step::WatchList("/api/v1/pods"),
        Step::WatchList("/api/v1/nodes"),
        Step::WatchList("/api/v1/namespaces"),
        Step::WatchList("/api/v1/persistentvolumeclaims"),
        Step::WatchList("/apis/apps/v1/replicasets"),
        Step::WatchList("/apis/apps/v1/statefulsets"),
        Step::WatchList("/apis/policy/v1/poddisruptionbudgets"),
        Step::WatchList("/apis/scheduling.k8s.io/v1/priorityclasses"),
    ],
    rounds: 1,
    round: &[Step::Pause(2_000)],
};

/// `None`: the pattern is no table of requests.
pub(super) fn of(pattern: Pattern) -> Option<&'static Recorded> {
    match pattern {
        Pattern::Token | Pattern::OtherToken => Some(&TOKEN),
        Pattern::Gzip => Some(&GZIP),
        Pattern::Loop => Some(&LOOP),
        Pattern::K9sPods => Some(&K9S_PODS),
        Pattern::Descheduler => Some(&DRY_RUN),
        _ => None,
    }
}

struct Replay {
    session: Session,
    other: Session,
    streams: Vec<Stream>,
}

/// `other`: the kube-apiserver.
pub(super) async fn replay(recorded: &Recorded, side: &Arc<Side>, other: &Arc<Side>) -> anyhow::Result<()> {
    let session = Session::open(side, recorded.program).await?;
    let mut replay = Replay { session, other: Session::open(other, &CONTROLLER).await?, streams: Vec::new() };
    for step in recorded.begin {
        replay.step(step, 0).await?;
    }
    for round in 0..recorded.rounds {
        for step in recorded.round {
            replay.step(step, round).await?;
        }
    }
    Ok(())
}

// === impl Replay ===

impl Replay {
    async fn step(&mut self, step: &Step, round: usize) -> anyhow::Result<()> {
        match *step {
            Step::Read(path, accept) => self.session.read(path, accept).await?,
            Step::WatchList(path) => self.streams.push(self.session.informer(path, JSON).await?),
            Step::ListAndWatch(path) => self.streams.push(self.session.list_and_watch(path).await?.1),
            Step::UpdateStatus => self.update_status(round).await?,
            Step::OtherWrite => {
                let (name, version) = (format!("conf-{}", round % world::CONFIG_MAPS), format!("other-{round}"));
                let path = format!("/api/v1/namespaces/shop/configmaps/{name}");
                self.other.write(Method::PUT, &path, world::config_map(&name, &version)).await?;
            }
            Step::Pause(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
        }
        Ok(())
    }

    async fn update_status(&mut self, round: usize) -> anyhow::Result<()> {
        let path = format!("/apis/apps/v1/namespaces/shop/deployments/web-{}", round % world::DEPLOYMENTS);
        let mut deployment: Value = serde_json::from_slice(&self.session.fetch(&path, JSON).await?)?;
        deployment["status"] = json!({ "observedGeneration": round + 1 });
        self.session.write(Method::PUT, &format!("{path}/status"), deployment.to_string()).await?;
        let event = format!("\"observedGeneration\":{}}}", round + 1);
        self.streams.first_mut().context("it has an informer")?.until(event.as_bytes()).await
    }
}
