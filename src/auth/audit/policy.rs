//! Selects what is logged: `audit.k8s.io/v1` Policy, the same file format that the apiserver reads.

use serde::{Deserialize, Serialize};

use crate::auth::attributes::Attributes;
use crate::auth::user::UserInfo;

/// The rules. The first rule that matches decides. If no rule matches, nothing is logged. The default logs everything.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    rules: Vec<Rule>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Rule {
    level: Level,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<Stage>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    resource_names: Vec<String>,
}

/// A read that is answered from a cache has no request body, and response bodies are not logged. So every level except
/// `None` means `Metadata` here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum Level {
    #[default]
    Unset,
    None,
    Metadata,
    Request,
    RequestResponse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

// === impl Policy ===

impl Policy {
    /// Reads the YAML of a policy file.
    ///
    /// # Errors
    /// The text is not a policy, or the policy has no rules.
    pub fn parse(text: &str) -> Result<Self, String> {
        let policy: Self = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        if policy.kind != "Policy" || policy.api_version != "audit.k8s.io/v1" {
            return Err("want kind Policy of audit.k8s.io/v1".into());
        }
        if policy.rules.is_empty() {
            return Err("has no rules".into());
        }
        if let Some(at) = policy.rules.iter().position(|rule| rule.level == Level::Unset) {
            return Err(format!("rule {} has no level", at + 1));
        }
        Ok(policy)
    }

    /// The stages to leave out for this request; `None` if nothing is logged.
    pub(super) fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Option<Vec<Stage>> {
        let rule =
            self.rules.iter().find(|rule| rule.matches(user, attributes)).filter(|rule| rule.level != Level::None)?;
        Some(self.omit_stages.iter().chain(&rule.omit_stages).copied().collect())
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            kind: "Policy".into(),
            api_version: "audit.k8s.io/v1".into(),
            rules: vec![Rule { level: Level::Metadata, ..Rule::default() }],
            omit_stages: Vec::new(),
        }
    }
}

// === impl Rule ===

impl Rule {
    fn matches(&self, user: &UserInfo, attributes: &Attributes) -> bool {
        let has = |list: &[String], text: &str| list.iter().any(|one| one == text);
        if !self.users.is_empty() && !has(&self.users, &user.username)
            || !self.user_groups.is_empty() && !user.groups.iter().any(|group| has(&self.user_groups, group))
            || !self.verbs.is_empty() && !has(&self.verbs, &attributes.verb)
        {
            return false;
        }
        match &attributes.path {
            None if !self.namespaces.is_empty() || !self.resources.is_empty() => {
                // An object without a namespace has an empty one.
                (self.namespaces.is_empty() || has(&self.namespaces, &attributes.namespace))
                    && (self.resources.is_empty()
                        || self.resources.iter().any(|resources| resources.matches(attributes)))
            }
            Some(_) if !self.namespaces.is_empty() || !self.resources.is_empty() => false,
            None => self.non_resource_urls.is_empty(),
            Some(path) => {
                self.non_resource_urls.is_empty()
                    || self.non_resource_urls.iter().any(|url| match url.strip_suffix('*') {
                        Some(prefix) => path.starts_with(prefix),
                        None => path == url,
                    })
            }
        }
    }
}

// === impl GroupResources ===

impl GroupResources {
    fn matches(&self, attributes: &Attributes) -> bool {
        if self.group != attributes.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.resource_names.is_empty() && !self.resource_names.contains(&attributes.name) {
            return false;
        }
        self.resources.iter().any(|pattern| {
            let (resource, subresource) = pattern.split_once('/').unwrap_or((pattern, ""));
            match (resource, subresource) {
                ("*", "") => true,
                ("*", subresource) => !attributes.subresource.is_empty() && subresource == attributes.subresource,
                (resource, "*") => resource == attributes.resource,
                (resource, subresource) => resource == attributes.resource && subresource == attributes.subresource,
            }
        })
    }
}
