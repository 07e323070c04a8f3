//! `informerd check`: checks the configuration, the connection to the apiserver, and what our identity may read.

mod report;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use serde::Deserialize;

use self::report::{Access, May, Needed, Report};
use crate::apiserver::reader::{get_json, post_json};
use crate::apiserver::{CallOptions, Discovery, RequestVerb, Upstream, UpstreamError, kubeconfig};
use crate::auth::{ClientCaSource, Mode};
use crate::config::{Config, Environment, ResourcePattern, ResourceRule, UpstreamConfig, kubeconfig_not_found};
use crate::http::ListenAddr;

/// Reviews in flight at once. The apiserver answers each in a few milliseconds.
const AT_ONCE: usize = 16;
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);
/// The most bytes of a review or a version that are read.
const MAX_ANSWER: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    git_version: String,
}

/// The apiserver to use, and where that is configured.
#[derive(Debug)]
pub struct Cluster {
    pub config: kube::Config,
    /// The kubeconfigs, or the pod's service account.
    pub origin: String,
    /// The context of the kubeconfigs. Empty in a pod.
    pub context: String,
}

/// Loads the kubeconfigs of the settings, or the pod's service account.
///
/// # Errors
/// They cannot be read, or name the daemon itself. The message is one line.
pub async fn cluster(settings: &Config) -> Result<Cluster, String> {
    let UpstreamConfig { kubeconfigs: paths, context } = &settings.upstream;
    if paths.is_empty() {
        let not_found = |error: &dyn std::error::Error| kubeconfig_not_found(&Environment, &chain(error));
        let config = kube::Config::incluster().map_err(|error| not_found(&error))?;
        return Ok(Cluster { config, origin: "service account".to_owned(), context: String::new() });
    }
    let origin = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(":");
    let failed = |error: &dyn std::error::Error| format!("kubeconfig {origin}: {}", chain(error));
    let wanted = kubeconfig::Wanted { context: context.clone(), ..Default::default() };
    let files = paths.clone();
    let read = tokio::task::spawn_blocking(move || kubeconfig::load(&files, &wanted)).await;
    let kubeconfig::Kubeconfig { config, context, .. } =
        read.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    if let Some(own) = own_address(&config, &settings.http.listen) {
        return Err(format!(
            "kubeconfig {origin}: the context {context} names {own}, where informerd itself is to listen: \
             --kubeconfig or --context names the apiserver"
        ));
    }
    Ok(Cluster { config, origin, context })
}

/// The listener that the kubeconfig names as its server, as one does that `informerd kubeconfig` wrote.
fn own_address(config: &kube::Config, listen: &[ListenAddr]) -> Option<SocketAddr> {
    let named = config.cluster_url.authority()?.as_str().parse::<SocketAddr>().ok()?;
    let address = |of: &ListenAddr| match of {
        ListenAddr::Http(at) | ListenAddr::Https(at) | ListenAddr::Delegated(at) => Some(*at),
        ListenAddr::Unix(_) => None,
    };
    listen.iter().filter_map(address).find(|at| *at == named)
}

/// Queries the apiserver. Resources that may not be read everywhere are also checked in the namespaces of the rules,
/// or, if there are none, in the namespace of the kubeconfig's context. Returns the text to print, and the problems.
///
/// # Errors
/// The apiserver cannot be reached, or refuses the queries. The message is one line.
pub(super) async fn ask(cluster: &Cluster, config: &Config) -> Result<(String, Vec<&'static str>), String> {
    let kube = &cluster.config;
    let report = async { report(&Upstream::from_config(kube.clone()).await?, kube, config).await }.await;
    let failed = |error: UpstreamError| format!("apiserver {}: {}", kube.cluster_url, chain(&error));
    let (report, wrong) = report.map_err(failed)?.render(&config.informer.rules);
    let Cluster { origin, context, .. } = cluster;
    let context = if context.is_empty() { String::new() } else { format!(", context {context}") };
    Ok((format!("credentials: {origin}{context}\n{report}"), wrong))
}

async fn report(upstream: &Upstream, kube: &kube::Config, config: &Config) -> Result<Report, UpstreamError> {
    let namespaces = &namespaces(&config.informer.rules, &kube.default_namespace);
    let version = version(upstream).await?;
    let reviews = readable(upstream).await?.into_iter().map(|(group, resource, namespaced)| async move {
        let everywhere = may(upstream, None, &group, &resource).await?;
        let mut within = Vec::new();
        for namespace in namespaces.iter().filter(|_| namespaced && !everywhere.both()) {
            within.push((namespace.clone(), may(upstream, Some(namespace), &group, &resource).await?));
        }
        Ok::<_, UpstreamError>(Access { resource: ResourcePattern { group, resource }, everywhere, within })
    });
    let answers: Vec<_> = stream::iter(reviews).buffer_unordered(AT_ONCE).collect().await;
    let mut access = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
    access.sort_by(|a, b| a.resource.cmp(&b.resource));
    let (server, needed) = (kube.cluster_url.to_string(), needed(upstream, config).await?);
    Ok(Report { server, version, access, needed })
}

async fn version(upstream: &Upstream) -> Result<String, UpstreamError> {
    let options = CallOptions::new(RequestVerb::Get, "").header_timeout(TIMEOUT);
    let (_, version): (_, Version) = get_json(upstream, "/version", "application/json", &options, MAX_ANSWER).await?;
    Ok(version.git_version)
}

/// Group and plural name of every resource with list and watch in any version, and whether it is namespaced.
async fn readable(upstream: &Upstream) -> Result<BTreeSet<(String, String, bool)>, UpstreamError> {
    let found = Discovery::new(upstream.clone())
        .resources()
        .await?
        .into_iter()
        .filter(|resource| resource.verbs.list && resource.verbs.watch)
        .map(|resource| (resource.gvr.group.to_string(), resource.gvr.resource.to_string(), resource.namespaced))
        .collect();
    Ok(found)
}

/// The rights that delegated listeners need to authenticate and authorize their clients.
async fn needed(upstream: &Upstream, config: &Config) -> Result<Vec<Needed>, UpstreamError> {
    let mut needed = Vec::new();
    if !config.http.listen.iter().any(|address| address.mode() == Mode::Delegated) {
        return Ok(needed);
    }
    let reviews = [
        ("create tokenreviews.authentication.k8s.io", "authentication.k8s.io", "tokenreviews"),
        ("create subjectaccessreviews.authorization.k8s.io", "authorization.k8s.io", "subjectaccessreviews"),
    ];
    for (what, group, resource) in reviews {
        let allowed = allowed(upstream, attributes(None, group, resource, "create")).await?;
        needed.push(Needed { what, why: "delegated listeners ask for each client (system:auth-delegator)", allowed });
    }
    let May { list, watch } = may(upstream, None, "apiregistration.k8s.io", "apiservices").await?;
    let why = "delegated listeners share no answers of aggregated APIs, which are known from them";
    needed.push(Needed { what: "list and watch apiservices.apiregistration.k8s.io", why, allowed: list && watch });
    if config.auth.client_ca == Some(ClientCaSource::Cluster) {
        let name = Some("extension-apiserver-authentication".to_owned());
        let config_map = attributes(Some("kube-system"), "", "configmaps", "get");
        let allowed = allowed(upstream, ResourceAttributes { name, ..config_map }).await?;
        let what = "get the ConfigMap kube-system/extension-apiserver-authentication";
        needed.push(Needed { what, why: "authentication.clientCa is read from it", allowed });
    }
    Ok(needed)
}

async fn may(upstream: &Upstream, namespace: Option<&str>, group: &str, resource: &str) -> Result<May, UpstreamError> {
    let list = allowed(upstream, attributes(namespace, group, resource, "list")).await?;
    Ok(May { list, watch: allowed(upstream, attributes(namespace, group, resource, "watch")).await? })
}

fn attributes(namespace: Option<&str>, group: &str, resource: &str, verb: &str) -> ResourceAttributes {
    ResourceAttributes {
        namespace: namespace.map(str::to_owned),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        verb: Some(verb.to_owned()),
        ..Default::default()
    }
}

async fn allowed(upstream: &Upstream, attributes: ResourceAttributes) -> Result<bool, UpstreamError> {
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..Default::default() };
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let resource = "selfsubjectaccessreviews.authorization.k8s.io";
    let options = CallOptions::new(RequestVerb::Review, resource).header_timeout(TIMEOUT);
    let answer: SelfSubjectAccessReview = post_json(upstream, path, &review, &options, MAX_ANSWER).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// The namespaces that the rules name, or our own if they name none.
fn namespaces(rules: &[ResourceRule], own: &str) -> BTreeSet<String> {
    let mut namespaces: BTreeSet<_> = rules.iter().flat_map(|rule| rule.namespaces.iter().cloned()).collect();
    if namespaces.is_empty() {
        namespaces.insert(own.to_owned());
    }
    namespaces
}

/// An error and its causes in one line, without repetitions.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::testing::{FakeServer, answer, padded};

    #[tokio::test]
    async fn an_answer_has_a_bound() {
        for (bytes, is_read) in [(MAX_ANSWER, true), (MAX_ANSWER + 1, false)] {
            let body = padded(r#"{"gitVersion":"v1.36.3","status":{"allowed":true}}"#, bytes);
            let server = FakeServer::plain(move |_, _| std::future::ready(answer(200, body.clone()))).await;
            let upstream = Upstream::from_config(server.config()).await.unwrap();
            let may_list = allowed(&upstream, attributes(None, "", "pods", "list")).await;
            assert_eq!((version(&upstream).await.is_ok(), may_list.is_ok()), (is_read, is_read), "{bytes}");
        }
    }
}
