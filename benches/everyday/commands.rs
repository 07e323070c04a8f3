//! What people, scripts and dashboards ask in a minute: 12 commands of kubectl, 11 calls of the Python client, 3 of curl.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use serde_json::Value;

use super::Options;
use super::session::{ANY, CURL, JSON, KUBECTL, PROTOBUF, PYTHON, Session, Side, TABLE};

/// One after the other, several rounds.
pub(crate) async fn one_by_one(side: &Arc<Side>, options: &Options) -> anyhow::Result<()> {
    for _ in 0..options.rounds {
        round(side, 0, options).await?;
    }
    Ok(())
}

/// Many such users at once, all in the same order. Or each begins with another command, so that equal requests meet by
/// chance only.
pub(crate) async fn at_once(side: &Arc<Side>, options: &Options, in_order: bool) -> anyhow::Result<()> {
    try_join_all((0..options.users).map(|user| {
        let (side, options) = (side.clone(), options.clone());
        let first = if in_order { 0 } else { user };
        let rounds = async move {
            for _ in 0..options.user_rounds {
                round(&side, first, &options).await?;
            }
            anyhow::Ok(())
        };
        async move { informerd::lifecycle::spawn("user", rounds).await? }
    }))
    .await?;
    Ok(())
}

const COMMANDS: usize = 26;

async fn round(side: &Arc<Side>, first: usize, options: &Options) -> anyhow::Result<()> {
    let mut python = Session::open(side, &PYTHON).await?;
    for command in 0..COMMANDS {
        match (first + command) % COMMANDS {
            command @ 0..12 => kubectl(side, command).await?,
            command @ 12..23 => {
                python.get(PYTHON_CALLS[command - 12], JSON).await?;
            }
            command => {
                // Its answers are indented, as for every client that says nothing of JSON.
                Session::open(side, &CURL).await?.get(CURL_CALLS[command - 23], ANY).await?;
            }
        }
        tokio::time::sleep(Duration::from_millis(options.pause_ms)).await;
    }
    Ok(())
}

/// Each command is a process of its own, with a connection of its own. It has discovery on disk.
async fn kubectl(side: &Arc<Side>, command: usize) -> anyhow::Result<()> {
    let mut session = Session::open(side, &KUBECTL).await?;
    let pages: &[(&str, &'static str)] = match command {
        0 => &[("/api/v1/namespaces/app-1/pods?limit=500", TABLE)],
        1 => &[("/api/v1/pods?limit=500", TABLE)],
        // get pods -o yaml
        2 => &[("/api/v1/namespaces/app-2/pods?limit=500", JSON)],
        // get deploy,svc
        3 => &[
            ("/apis/apps/v1/namespaces/app-3/deployments?limit=500", TABLE),
            ("/api/v1/namespaces/app-3/services?limit=500", TABLE),
        ],
        4 => &[("/api/v1/nodes?limit=500", TABLE)],
        5 => &[("/api/v1/namespaces/app-4/events?limit=500", TABLE)],
        6 => &[("/api/v1/pods?labelSelector=app%3Dweb-7&limit=500", TABLE)],
        // get pods -o name
        7 => &[("/api/v1/namespaces/app-5/pods?limit=500", JSON)],
        // get pods -A -o wide
        8 => &[("/api/v1/pods?limit=500", TABLE)],
        9 => {
            session.get("/api/v1/namespaces/app-6/pods/pod-00006", TABLE).await?;
            &[]
        }
        // get configmap conf-1 -o jsonpath
        10 => {
            session.get("/api/v1/namespaces/app-7/configmaps/conf-1", JSON).await?;
            &[]
        }
        _ => return describe(&mut session).await,
    };
    for (path, accept) in pages {
        session.pages(path, accept).await?;
    }
    Ok(())
}

/// `kubectl describe pod`
async fn describe(session: &mut Session) -> anyhow::Result<()> {
    const POD: &str = "/api/v1/namespaces/app-8/pods/pod-00008";
    let pod: Value = serde_json::from_slice(&session.get(POD, JSON).await?)?;
    session.get(POD, PROTOBUF).await?;
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    let events = format!(
        "/api/v1/namespaces/app-8/events?fieldSelector=involvedObject.name%3Dpod-00008%2CinvolvedObject.namespace%3Dapp-8%2CinvolvedObject.uid%3D{uid}&limit=500"
    );
    session.get(&events, PROTOBUF).await?;
    Ok(())
}

const PYTHON_CALLS: [&str; 11] = [
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/api/v1/pods",
    "/api/v1/namespaces/app-1/pods",
    "/api/v1/pods?labelSelector=app%3Dweb-3",
    "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-3",
    "/api/v1/namespaces/app-2/pods/pod-00002",
    "/api/v1/namespaces/app-2/configmaps/conf-2",
    "/api/v1/namespaces/app-3/services",
    "/apis/apps/v1/namespaces/app-3/deployments",
    "/api/v1/namespaces/app-4/events",
];

const CURL_CALLS: [&str; 3] =
    ["/api/v1/namespaces/app-5/pods", "/api/v1/namespaces/app-5/pods/pod-00005", "/api/v1/nodes?limit=5"];
