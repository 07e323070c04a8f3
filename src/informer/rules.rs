//! The configured rules for which resources may be cached, and in which scopes. The first match wins.

use std::sync::Arc;

use crate::meta::Gvr;
use crate::packing::PackingForm;

use super::InformerScope;

/// One configured rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRule {
    /// `*` for every group; "" is the core group.
    pub group: String,
    /// `*` for every resource of the group; the plural name otherwise.
    pub resource: String,
    pub exclude: bool,
    /// Start at once and never stop when idle. Requires a named resource.
    pub pin: bool,
    /// Whether its objects are packed, if it differs from the setting of the process.
    pub form: Option<PackingForm>,
    /// Whether it may be kept on disk, if snapshots are on.
    pub no_snapshot: bool,
    /// Empty: every namespace, no selector.
    pub scopes: Vec<ScopeRule>,
}

/// One configured scope of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeRule {
    pub namespace: Option<String>,
    pub field_selector: String,
    pub label_selector: String,
}

/// The rules in the order of the configuration.
#[derive(Clone, Debug)]
pub struct Rules {
    rules: Arc<[ResourceRule]>,
}

// === impl Rules ===

impl Rules {
    pub fn new(rules: Vec<ResourceRule>) -> Self {
        Self { rules: rules.into() }
    }

    /// The first rule that names the resource.
    pub fn find(&self, gvr: &Gvr) -> Option<&ResourceRule> {
        self.rules.iter().find(|rule| rule.names(gvr))
    }

    /// Whether a rule excludes the resource. Secrets are excluded unless a rule names them: any client that can reach
    /// an unauthenticated listener can read what is cached.
    pub fn excludes(&self, gvr: &Gvr) -> bool {
        let by_default = gvr.group.is_empty() && &*gvr.resource == "secrets";
        match self.find(gvr) {
            Some(rule) if rule.exclude => true,
            Some(rule) => by_default && rule.resource == "*",
            None => by_default,
        }
    }

    /// The scopes that an informer of this resource may have; empty if only "everything" is configured.
    pub fn scopes(&self, gvr: &Gvr) -> Vec<InformerScope> {
        self.find(gvr).map(|rule| rule.scopes.iter().map(InformerScope::from).collect()).unwrap_or_default()
    }

    pub fn form(&self, gvr: &Gvr) -> Option<PackingForm> {
        self.find(gvr).and_then(|rule| rule.form)
    }

    /// Whether the resource may be kept on disk. Secrets may only if they are encrypted there.
    pub fn keeps(&self, gvr: &Gvr, encrypted: bool) -> bool {
        let is_secret = gvr.group.is_empty() && &*gvr.resource == "secrets";
        (encrypted || !is_secret) && !self.find(gvr).is_some_and(|rule| rule.no_snapshot)
    }

    pub fn pins(&self, gvr: &Gvr) -> bool {
        self.find(gvr).is_some_and(|rule| rule.pin && !rule.exclude)
    }

    /// Whether the informer of this scope is one of those that are started at once.
    pub(super) fn pins_scope(&self, gvr: &Gvr, scope: &InformerScope) -> bool {
        let scopes = self.scopes(gvr);
        self.pins(gvr) && (scopes.contains(scope) || scopes.is_empty() && scope.is_everything())
    }

    /// The rules whose informers are started at once.
    pub fn pinned(&self) -> impl Iterator<Item = &ResourceRule> {
        self.rules.iter().filter(|rule| rule.pin && !rule.exclude)
    }
}

// === impl ResourceRule ===

impl ResourceRule {
    fn names(&self, gvr: &Gvr) -> bool {
        (self.group == "*" || self.group == *gvr.group) && (self.resource == "*" || self.resource == *gvr.resource)
    }
}

// === impl InformerScope ===

impl From<&ScopeRule> for InformerScope {
    fn from(rule: &ScopeRule) -> Self {
        Self {
            namespace: rule.namespace.as_deref().map(Arc::from),
            field_selector: rule.field_selector.as_str().into(),
            label_selector: rule.label_selector.as_str().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(group: &str, resource: &str) -> ResourceRule {
        ResourceRule { group: group.into(), resource: resource.into(), ..Default::default() }
    }

    #[test]
    fn secrets_are_excluded_unless_a_rule_names_them() {
        let secrets = Gvr::new("", "v1", "secrets");
        assert!(Rules::new(vec![]).excludes(&secrets));
        assert!(Rules::new(vec![rule("*", "*")]).excludes(&secrets));
        assert!(!Rules::new(vec![rule("", "secrets")]).excludes(&secrets));
        assert!(!Rules::new(vec![]).excludes(&Gvr::new("", "v1", "pods")));
    }

    #[test]
    fn first_match_wins() {
        let rules = Rules::new(vec![ResourceRule { exclude: true, ..rule("apps", "*") }, rule("apps", "deployments")]);
        assert!(rules.excludes(&Gvr::new("apps", "v1", "deployments")));
    }
}
