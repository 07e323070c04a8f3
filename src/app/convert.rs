//! Converts the settings of the configuration into the settings of each module.

use crate::cache::{Budget, CacheConfig};
use crate::config::{Config, ResourceRule};
use crate::informer::{self, FactoryConfig, Rules, ScopeRule};
use crate::meta::Gvr;
use crate::packing::Packing;
use crate::snapshots::Snapshots;
use crate::upstream::reflector::ReflectorConfig;

pub(super) fn factory(
    config: &Config,
    budget: &Budget,
    packing: &Packing,
    snapshots: Option<Snapshots>,
    max_informers: usize,
) -> FactoryConfig {
    // The factory sets the resource of each cache.
    let cache = CacheConfig::new(Gvr::new("", "", ""));
    // More memory has room for more events. The default has room for the default number.
    let bytes_of_event = (cache.window_max_bytes / cache.window_max_events).max(1);
    FactoryConfig {
        rules: Rules::new(config.informer.rules.iter().map(rule).collect()),
        idle_timeout: config.informer.idle_timeout,
        max_informers,
        cache: CacheConfig {
            window_max_events: cache.window_max_events.max(config.window_max_bytes / bytes_of_event),
            window_max_bytes: config.window_max_bytes,
            budget: budget.clone(),
            packing: packing.clone(),
            ..cache
        },
        reflector: ReflectorConfig::default(),
        snapshots,
    }
}

/// A rule with several namespaces has an informer for each.
fn rule(rule: &ResourceRule) -> informer::ResourceRule {
    let scope = |namespace| ScopeRule {
        namespace,
        field_selector: rule.field_selector.clone(),
        label_selector: rule.label_selector.clone(),
    };
    let everything = rule.namespaces.is_empty() && rule.field_selector.is_empty() && rule.label_selector.is_empty();
    informer::ResourceRule {
        group: rule.pattern.group.clone(),
        resource: rule.pattern.resource.clone(),
        exclude: rule.exclude,
        pin: rule.pin,
        form: rule.form,
        no_snapshot: !rule.snapshot,
        scopes: match rule.namespaces.as_slice() {
            _ if everything => Vec::new(),
            [] => vec![scope(None)],
            namespaces => namespaces.iter().cloned().map(Some).map(scope).collect(),
        },
    }
}
