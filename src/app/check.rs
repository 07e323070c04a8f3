//! `informerd check`: is the configuration right, is the apiserver there, and what may we read of it?

use std::fmt::Write as _;

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};

use crate::config::{ResourceRule, UpstreamConfig};

/// Reviews asked at once; the apiserver answers each in a few milliseconds.
const AT_ONCE: usize = 16;
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// A resource of the apiserver that has both verbs, and whether our identity may use them in all namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub group: String,
    pub resource: String,
    pub list: bool,
    pub watch: bool,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub server: String,
    pub version: String,
    pub access: Vec<Access>,
}

/// The kubeconfig of the settings, or the pod's service account.
///
/// # Errors
/// It cannot be read, in one line.
pub async fn kube_config(upstream: &UpstreamConfig) -> Result<kube::Config, String> {
    let Some(path) = &upstream.kubeconfig else {
        return kube::Config::incluster()
            .map_err(|error| format!("no --kubeconfig, and this is no pod with a service account: {}", chain(&error)));
    };
    let failed = |error: &dyn std::error::Error| format!("kubeconfig {}: {}", path.display(), chain(error));
    let kubeconfig = kube::config::Kubeconfig::read_from(path).map_err(|error| failed(&error))?;
    let options = kube::config::KubeConfigOptions { context: upstream.context.clone(), ..Default::default() };
    kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| failed(&error))
}

/// Asks the apiserver.
///
/// # Errors
/// It cannot be reached, or does not let us ask; in one line.
pub async fn ask(upstream: &UpstreamConfig) -> Result<Report, String> {
    let mut config = kube_config(upstream).await?;
    config.connect_timeout = Some(TIMEOUT);
    config.read_timeout = Some(TIMEOUT);
    let server = config.cluster_url.to_string();
    let failed = |error: &kube::Error| match error {
        kube::Error::Api(status) => format!("apiserver {server}: {} ({})", status.message, status.code),
        error => format!("apiserver {server}: {}", chain(error)),
    };
    let client = kube::Client::try_from(config).map_err(|error| failed(&error))?;
    let version = client.apiserver_version().await.map_err(|error| failed(&error))?.git_version;
    let readable = readable(&client).await.map_err(|error| failed(&error))?;
    let reviews = readable.into_iter().map(|(group, resource)| {
        let client = client.clone();
        async move {
            let list = allowed(&client, &group, &resource, "list").await?;
            let watch = allowed(&client, &group, &resource, "watch").await?;
            Ok::<_, kube::Error>(Access { group, resource, list, watch })
        }
    });
    let answers: Vec<_> = stream::iter(reviews).buffer_unordered(AT_ONCE).collect().await;
    let mut access = answers.into_iter().collect::<Result<Vec<_>, _>>().map_err(|error| failed(&error))?;
    access.sort_by(|a, b| (&a.group, &a.resource).cmp(&(&b.group, &b.resource)));
    Ok(Report { server, version, access })
}

/// Group and plural name of everything that has list and watch, in any version.
async fn readable(client: &kube::Client) -> Result<Vec<(String, String)>, kube::Error> {
    let mut found = Vec::new();
    let mut add = |group: &str, list: k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList| {
        for resource in list.resources {
            let has = |verb: &str| resource.verbs.iter().any(|has| has == verb);
            if !resource.name.contains('/') && has("list") && has("watch") {
                found.push((group.to_owned(), resource.name));
            }
        }
    };
    for version in client.list_core_api_versions().await?.versions {
        add("", client.list_core_api_resources(&version).await?);
    }
    for group in client.list_api_groups().await?.groups {
        for version in &group.versions {
            // An aggregated API whose server is away says nothing about all the others.
            match client.list_api_group_resources(&version.group_version).await {
                Ok(list) => add(&group.name, list),
                Err(error) => tracing::warn!(group = version.group_version, %error, "not discovered"),
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

async fn allowed(client: &kube::Client, group: &str, resource: &str, verb: &str) -> Result<bool, kube::Error> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(group.to_owned()),
                resource: Some(resource.to_owned()),
                verb: Some(verb.to_owned()),
                ..Default::default()
            }),
            ..Default::default()
        },
        ..Default::default()
    };
    let body = serde_json::to_vec(&review).map_err(kube::Error::SerdeError)?;
    let request = http::Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(kube::Error::HttpError)?;
    let answer: SelfSubjectAccessReview = client.request(request).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// An error and its causes in one line, none said twice.
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

// === impl Report ===

impl Report {
    /// What to print, and whether everything that is asked for is there.
    pub fn render(&self, rules: &[ResourceRule]) -> (String, bool) {
        let mut text = String::new();
        let mut good = true;
        let may = self.access.iter().filter(|access| access.list && access.watch).count();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "apiserver: {} {}", self.server, self.version);
        let _ = writeln!(text, "may be listed and watched in all namespaces: {may} of {} resources", self.access.len());
        for access in &self.access {
            let rule = rules.iter().find(|rule| access.is_named_by(rule));
            let excluded = match rule {
                Some(rule) if rule.exclude => Some("excluded by the configuration"),
                Some(rule) if rule.pattern.resource != "*" => None,
                _ if access.group.is_empty() && access.resource == "secrets" => Some("excluded by default"),
                _ => None,
            };
            let forbidden = match (access.list, access.watch) {
                (true, true) => None,
                (true, false) => Some("we may not watch it"),
                (false, true) => Some("we may not list it"),
                (false, false) => Some("we may neither list nor watch it"),
            };
            let scoped = rule.is_some_and(|rule| !rule.namespaces.is_empty());
            if let Some(why) = excluded.or(forbidden) {
                let name = access.name();
                let _ = match (excluded, scoped) {
                    (None, true) => writeln!(text, "  {name}: {why} in all namespaces; its rule names namespaces"),
                    _ => writeln!(text, "  {name}: forwarded, {why}"),
                };
            }
            if rule.is_some_and(|rule| rule.pin) && forbidden.is_some() && !scoped {
                let _ = writeln!(text, "  {}: is pinned, and cannot be cached", access.name());
                good = false;
            }
        }
        for rule in rules.iter().filter(|rule| rule.pin) {
            if !self.access.iter().any(|access| access.is_named_by(rule)) {
                let _ = writeln!(text, "  {}: is pinned, and the apiserver has no such resource", rule.pattern);
                good = false;
            }
        }
        (text, good)
    }
}

// === impl Access ===

impl Access {
    fn name(&self) -> String {
        if self.group.is_empty() { self.resource.clone() } else { format!("{}.{}", self.resource, self.group) }
    }

    fn is_named_by(&self, rule: &ResourceRule) -> bool {
        let pattern = &rule.pattern;
        (pattern.group == "*" || pattern.group == self.group)
            && (pattern.resource == "*" || pattern.resource == self.resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RuleModes;

    fn report() -> Report {
        let access = |group: &str, resource: &str, list, watch| Access {
            group: group.to_owned(),
            resource: resource.to_owned(),
            list,
            watch,
        };
        Report {
            server: "https://a:6443/".to_owned(),
            version: "v1.36.3".to_owned(),
            access: vec![
                access("", "pods", true, true),
                access("", "secrets", true, true),
                access("apps", "deployments", true, false),
            ],
        }
    }

    fn rule(pattern: &str, pin: bool, exclude: bool) -> ResourceRule {
        ResourceRule {
            pattern: pattern.parse().unwrap(),
            exclude,
            pin,
            namespaces: Vec::new(),
            field_selector: String::new(),
            label_selector: String::new(),
            modes: RuleModes::default(),
        }
    }

    #[test]
    fn tells_what_is_forwarded_and_why() {
        let (text, good) = report().render(&[]);
        let wanted = "apiserver: https://a:6443/ v1.36.3\n\
                      may be listed and watched in all namespaces: 2 of 3 resources\n  \
                      secrets: forwarded, excluded by default\n  \
                      deployments.apps: forwarded, we may not watch it\n";
        assert_eq!(text, wanted);
        assert!(good, "what may not be cached is forwarded");
    }

    #[test]
    fn follows_the_rules() {
        let (text, good) = report().render(&[rule("pods", true, false), rule("secrets", false, false)]);
        assert!(good && !text.contains("secrets:"), "{text}");
        let (text, _) = report().render(&[rule("*", false, false)]);
        assert!(text.contains("secrets: forwarded, excluded by default"), "{text}");
        let (text, _) = report().render(&[rule("pods", false, true)]);
        assert!(text.contains("pods: forwarded, excluded by the configuration"), "{text}");
    }

    #[test]
    fn a_pin_that_cannot_be_held_fails() {
        let (text, good) = report().render(&[rule("deployments.apps", true, false)]);
        assert!(!good && text.contains("deployments.apps: is pinned, and cannot be cached"), "{text}");
        let (text, good) = report().render(&[rule("widgets.example.com", true, false)]);
        assert!(!good && text.contains("has no such resource"), "{text}");
        let scoped = ResourceRule { namespaces: vec!["a".to_owned()], ..rule("deployments.apps", true, false) };
        assert!(report().render(&[scoped]).1, "all namespaces are not asked for");
    }
}
