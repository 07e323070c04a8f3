//! Programs that stay or come with much at once: an installation by Helm, a controller, k9s.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use http::Method;

use super::Options;
use super::session::{CONTROLLER, DISCOVERY, HELM, JSON, K9S, PROTOBUF, Session, Side, TABLE};
use super::world::{self, CONFIG_MAPS};

/// `helm install --wait` of a chart with a dozen objects, and `helm uninstall`.
pub(crate) async fn helm(side: &Arc<Side>, options: &Options) -> anyhow::Result<()> {
    const CORE: &str = "/api/v1/namespaces/app-9";
    let apps = "/apis/apps/v1/namespaces/app-9";
    let mut objects = Vec::new();
    for i in 0..3 {
        let name = format!("shop-{i}");
        objects.push((format!("{CORE}/configmaps"), name.clone(), world::config_map(&name, "1")));
        objects.push((
            format!("{CORE}/serviceaccounts"),
            name.clone(),
            format!(r#"{{"metadata":{{"name":"{name}"}}}}"#),
        ));
        objects.push((format!("{CORE}/services"), name.clone(), world::service(&name)));
        objects.push((format!("{apps}/deployments"), name.clone(), world::deployment(&name)));
    }
    let release = format!("{CORE}/secrets/sh.helm.release.v1.shop.v1");
    let secret = r#"{"metadata":{"name":"sh.helm.release.v1.shop.v1","labels":{"name":"shop","owner":"helm"}},"type":"helm.sh/release.v1","stringData":{"release":"H4sIAAAA"}}"#;

    let mut session = Session::open(side, &HELM).await?;
    session.get("/version", JSON).await?;
    session.get("/api", DISCOVERY).await?;
    session.get("/apis", DISCOVERY).await?;
    session.get(&format!("{CORE}/secrets?labelSelector=name%3Dshop%2Cowner%3Dhelm"), PROTOBUF).await?;
    for (path, name, _) in &objects {
        session.ask(&format!("{path}/{name}"), JSON).await?;
    }
    session.write(Method::POST, &format!("{CORE}/secrets"), secret.into()).await?;
    for (path, _, body) in &objects {
        session.write(Method::POST, path, body.clone()).await?;
    }
    for _ in 0..options.ticks {
        for (path, name, _) in &objects {
            session.get(&format!("{path}/{name}"), JSON).await?;
            if path.ends_with("deployments") {
                session.get(&format!("{apps}/replicasets?labelSelector=app%3D{name}"), PROTOBUF).await?;
                session.get(&format!("{CORE}/pods?labelSelector=app%3D{name}"), PROTOBUF).await?;
            }
        }
        tokio::time::sleep(Duration::from_millis(options.tick_ms)).await;
    }
    session.write(Method::PUT, &release, secret.into()).await?;
    for (path, name, _) in &objects {
        session.get(&format!("{path}/{name}"), JSON).await?;
        let propagation = r#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}"#;
        session.write(Method::DELETE, &format!("{path}/{name}"), propagation.into()).await?;
    }
    session.write(Method::DELETE, &release, String::new()).await
}

/// Five informers, and a GET before each update, as client-go's controllers do that retry on conflicts.
pub(crate) async fn controller(side: &Arc<Side>, options: &Options) -> anyhow::Result<()> {
    const CORE: &str = "/api/v1/namespaces/app-0";
    let mut session = Session::open(side, &CONTROLLER).await?;
    session.get("/api", DISCOVERY).await?;
    session.get("/apis", DISCOVERY).await?;
    let informed = ["/api/v1/pods", "/api/v1/nodes", "/api/v1/services", "/apis/apps/v1/deployments"];
    let streams = try_join_all(informed.map(|path| session.informer(path, PROTOBUF))).await?;
    let mut config_maps = session.informer("/api/v1/configmaps", PROTOBUF).await?;
    for update in 0..options.updates {
        let name = format!("conf-{}", update % CONFIG_MAPS);
        let path = format!("{CORE}/configmaps/{name}");
        session.get(&path, PROTOBUF).await?;
        let version = format!("update-{update:06}.");
        session.write(Method::PUT, &path, world::config_map(&name, &version)).await?;
        // Its next work is the event of what it wrote.
        config_maps.until(version.as_bytes()).await?;
    }
    drop(streams);
    Ok(())
}

/// Informers for what is shown by columns of its own, and tables for the rest, again every two seconds.
pub(crate) async fn k9s(side: &Arc<Side>, options: &Options) -> anyhow::Result<()> {
    let mut session = Session::open(side, &K9S).await?;
    session.get("/version", JSON).await?;
    session.get("/api", DISCOVERY).await?;
    session.get("/apis", DISCOVERY).await?;
    let informed = ["/api/v1/pods", "/api/v1/namespaces", "/api/v1/nodes"];
    let streams = try_join_all(informed.map(|path| session.informer(path, JSON))).await?;
    for _ in 0..options.ticks {
        for path in ["/api/v1/pods", "/apis/apps/v1/deployments", "/api/v1/services", "/api/v1/nodes"] {
            session.get(path, TABLE).await?;
        }
        tokio::time::sleep(Duration::from_millis(options.tick_ms)).await;
    }
    drop(streams);
    Ok(())
}

/// Clients that begin at any time within a second, each with the whole state of five resources and what follows it.
pub(crate) async fn herd(side: &Arc<Side>, options: &Options) -> anyhow::Result<()> {
    let informed =
        ["/api/v1/nodes", "/api/v1/services", "/api/v1/configmaps", "/api/v1/namespaces", "/apis/apps/v1/deployments"];
    let apart = Duration::from_secs(1) / u32::try_from(options.clients)?;
    try_join_all((0..options.clients).map(|client| {
        let side = side.clone();
        async move {
            tokio::time::sleep(apart * u32::try_from(client)?).await;
            let session = Session::open(&side, &CONTROLLER).await?;
            try_join_all(informed.map(|path| session.informer(path, JSON))).await
        }
    }))
    .await?;
    Ok(())
}
