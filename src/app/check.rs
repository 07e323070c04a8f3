//! `informerd check`: is the configuration right, is the apiserver there, and what may we read of it?

use std::collections::BTreeMap;
use std::fmt::Write as _;

use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};

use crate::config::{ResourceRule, UpstreamConfig};
use crate::upstream::kubeconfig;

/// Reviews asked at once; the apiserver answers each in a few milliseconds.
const AT_ONCE: usize = 16;
const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// Forbidden resources that are named in one line; of more their number is told.
const NAMED: usize = 6;

/// Whether our identity may list and watch something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct May {
    pub list: bool,
    pub watch: bool,
}

/// A resource of the apiserver that has both verbs, and what our identity may do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    pub group: String,
    pub resource: String,
    pub everywhere: May,
    /// Where it may not be read everywhere: the namespaces that were asked for besides.
    pub within: Vec<(String, May)>,
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
    let kubeconfig = kubeconfig::read(path).map_err(|error| failed(&error))?;
    let options = kube::config::KubeConfigOptions { context: upstream.context.clone(), ..Default::default() };
    kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| failed(&error))
}

/// The namespaces that the rules name.
pub fn namespaces(rules: &[ResourceRule]) -> Vec<String> {
    let mut namespaces: Vec<_> = rules.iter().flat_map(|rule| rule.namespaces.iter().cloned()).collect();
    namespaces.sort();
    namespaces.dedup();
    namespaces
}

/// Asks the apiserver. What may not be read everywhere is asked for in `namespaces` too, or, where there are none, in the
/// namespace of the kubeconfig's context.
///
/// # Errors
/// It cannot be reached, or does not let us ask; in one line.
pub async fn ask(mut config: kube::Config, namespaces: &[String]) -> Result<Report, String> {
    config.connect_timeout = Some(TIMEOUT);
    config.read_timeout = Some(TIMEOUT);
    let server = config.cluster_url.to_string();
    let own = [config.default_namespace.clone()];
    let namespaces = if namespaces.is_empty() { &own } else { namespaces };
    let failed = |error: &kube::Error| match error {
        kube::Error::Api(status) => format!("apiserver {server}: {} ({})", status.message, status.code),
        error => format!("apiserver {server}: {}", chain(error)),
    };
    let client = kube::Client::try_from(config).map_err(|error| failed(&error))?;
    let version = client.apiserver_version().await.map_err(|error| failed(&error))?.git_version;
    let readable = readable(&client).await.map_err(|error| failed(&error))?;
    let reviews = readable.into_iter().map(|(group, resource, namespaced)| {
        let client = client.clone();
        async move {
            let everywhere = may(&client, None, &group, &resource).await?;
            let mut within = Vec::new();
            for namespace in namespaces.iter().filter(|_| namespaced && !everywhere.both()) {
                within.push((namespace.clone(), may(&client, Some(namespace), &group, &resource).await?));
            }
            Ok::<_, kube::Error>(Access { group, resource, everywhere, within })
        }
    });
    let answers: Vec<_> = stream::iter(reviews).buffer_unordered(AT_ONCE).collect().await;
    let mut access = answers.into_iter().collect::<Result<Vec<_>, _>>().map_err(|error| failed(&error))?;
    access.sort_by(|a, b| (&a.group, &a.resource).cmp(&(&b.group, &b.resource)));
    Ok(Report { server, version, access })
}

/// Group and plural name of everything that has list and watch, in any version, and whether it is namespaced.
async fn readable(client: &kube::Client) -> Result<Vec<(String, String, bool)>, kube::Error> {
    let mut found = Vec::new();
    let mut add = |group: &str, list: k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList| {
        for resource in list.resources {
            let has = |verb: &str| resource.verbs.iter().any(|has| has == verb);
            if !resource.name.contains('/') && has("list") && has("watch") {
                found.push((group.to_owned(), resource.name, resource.namespaced));
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

async fn may(client: &kube::Client, namespace: Option<&str>, group: &str, resource: &str) -> Result<May, kube::Error> {
    let list = allowed(client, namespace, group, resource, "list").await?;
    Ok(May { list, watch: allowed(client, namespace, group, resource, "watch").await? })
}

async fn allowed(
    client: &kube::Client,
    namespace: Option<&str>,
    group: &str,
    resource: &str,
    verb: &str,
) -> Result<bool, kube::Error> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                namespace: namespace.map(str::to_owned),
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
        let may = self.access.iter().filter(|access| access.everywhere.both()).count();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "apiserver: {} {}", self.server, self.version);
        let _ = writeln!(text, "may be listed and watched in all namespaces: {may} of {} resources", self.access.len());
        for (namespace, may, of) in self.within() {
            let _ = writeln!(text, "of the others, in the namespace {namespace}: {may} of {of}");
        }
        // By what is wrong with them: an identity without rights would fill the screen otherwise.
        let mut forbidden: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for access in &self.access {
            let rule = rules.iter().find(|rule| access.is_named_by(rule));
            let name = access.name();
            let excluded = match rule {
                Some(rule) if rule.exclude => Some("excluded by the configuration"),
                Some(rule) if rule.pattern.resource != "*" => None,
                _ if access.group.is_empty() && access.resource == "secrets" => Some("excluded by default"),
                _ => None,
            };
            if let Some(why) = excluded {
                let _ = writeln!(text, "  {name}: forwarded, {why}");
                continue;
            }
            let scopes = rule.map_or(&[][..], |rule| &rule.namespaces);
            let missing = access.missing(scopes);
            for (namespace, why) in &missing {
                let Some(namespace) = namespace else {
                    forbidden.entry(why).or_default().push(name.clone());
                    continue;
                };
                let _ = writeln!(text, "  {name}: forwarded in the namespace {namespace}, {why} there");
            }
            if rule.is_some_and(|rule| rule.pin) && !missing.is_empty() {
                let _ = writeln!(text, "  {name}: is pinned, and cannot be cached");
                good = false;
            }
        }
        for (why, names) in forbidden {
            let shown = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let _ = match names.len().saturating_sub(NAMED) {
                0 => writeln!(text, "  forwarded, {why}: {shown}"),
                more => writeln!(text, "  forwarded, {why}: {shown} and {more} more"),
            };
        }
        for rule in rules.iter().filter(|rule| rule.pin) {
            if !self.access.iter().any(|access| access.is_named_by(rule)) {
                let _ = writeln!(text, "  {}: is pinned, and the apiserver has no such resource", rule.pattern);
                good = false;
            }
        }
        (text, good)
    }

    /// Each namespace that was asked for, how many resources may be read in it, and of how many.
    fn within(&self) -> Vec<(&str, usize, usize)> {
        let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (namespace, may) in self.access.iter().flat_map(|access| &access.within) {
            let (allowed, all) = counts.entry(namespace).or_default();
            *allowed += usize::from(may.both());
            *all += 1;
        }
        counts.into_iter().map(|(namespace, (allowed, all))| (namespace, allowed, all)).collect()
    }
}

// === impl May ===

impl May {
    fn both(self) -> bool {
        self.list && self.watch
    }

    /// What is missing, in words.
    fn lack(self) -> Option<&'static str> {
        match (self.list, self.watch) {
            (true, true) => None,
            (true, false) => Some("we may not watch it"),
            (false, true) => Some("we may not list it"),
            (false, false) => Some("we may neither list nor watch it"),
        }
    }
}

// === impl Access ===

impl Access {
    fn name(&self) -> String {
        if self.group.is_empty() { self.resource.clone() } else { format!("{}.{}", self.resource, self.group) }
    }

    /// Where it cannot be cached of what its rule asks for, and why: in the namespaces the rule names, otherwise in all
    /// together.
    fn missing<'a>(&self, scopes: &'a [String]) -> Vec<(Option<&'a str>, &'static str)> {
        let Some(why) = self.everywhere.lack() else { return Vec::new() };
        if scopes.is_empty() {
            return vec![(None, why)];
        }
        let lack = |scope: &String| match self.within.iter().find(|(namespace, _)| namespace == scope) {
            Some((_, may)) => may.lack(),
            None => Some(why),
        };
        scopes.iter().filter_map(|scope| Some((Some(scope.as_str()), lack(scope)?))).collect()
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
            everywhere: May { list, watch },
            within: Vec::new(),
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
                      forwarded, we may not watch it: deployments.apps\n";
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
        let mut report = report();
        let scoped = ResourceRule { namespaces: vec!["a".to_owned()], ..rule("deployments.apps", true, false) };
        for (list, good, told) in [(true, true, ""), (false, false, "deployments.apps: forwarded in the namespace a, ")]
        {
            report.access[2].within = vec![("a".to_owned(), May { list, watch: true })];
            let (text, is_good) = report.render(std::slice::from_ref(&scoped));
            assert!(is_good == good && text.contains(told), "{text}");
            assert!(text.contains(&format!("in the namespace a: {} of 1\n", u8::from(list))), "{text}");
        }
    }

    #[test]
    fn an_identity_without_rights_is_told_shortly() {
        let mut report = report();
        report.access = (0..60)
            .map(|n| Access {
                group: String::new(),
                resource: format!("things{n:02}"),
                everywhere: May { list: false, watch: false },
                within: vec![("default".to_owned(), May { list: n < 2, watch: true })],
            })
            .collect();
        let (text, good) = report.render(&[]);
        assert!(good && text.lines().count() == 4, "{text}");
        assert!(text.contains("of the others, in the namespace default: 2 of 60\n"), "{text}");
        assert!(
            text.contains("nor watch it: things00, things01, things02, things03, things04, things05 and 54 more\n")
        );
    }
}
