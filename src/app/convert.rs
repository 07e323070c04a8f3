//! Converts the settings of the configuration into the settings of each module.

use crate::cache::{Budget, CacheConfig};
use crate::config::{Config, ResourceRule, Then};
use crate::informer::{self, FactoryConfig, Rules, ScopeRule};
use crate::meta::Gvr;
use crate::packing::Packing;
use crate::reads::{NotSynced, ReadsConfig};
use crate::snapshots::Snapshots;
use crate::upstream::reflector::ReflectorConfig;

pub(super) fn factory(
    config: &Config,
    budget: &Budget,
    packing: &Packing,
    snapshots: Option<Snapshots>,
    max_informers: usize,
) -> FactoryConfig {
    let window = config.window;
    FactoryConfig {
        rules: Rules::new(config.informer.rules.iter().map(rule).collect()),
        idle_timeout: config.informer.idle_timeout,
        max_informers,
        cache: CacheConfig {
            window_min_age: window.min_age,
            window_max_events: window.max_events,
            window_max_bytes: window.max_bytes,
            budget: budget.clone(),
            packing: packing.clone(),
            // The factory sets the resource of each cache.
            ..CacheConfig::new(Gvr::new("", "", ""))
        },
        reflector: ReflectorConfig::default(),
        snapshots,
    }
}

pub(super) fn reads(config: &Config) -> ReadsConfig {
    let reads = &config.reads;
    ReadsConfig {
        modes: reads.modes,
        // All rules are needed: the first match decides, even if it does not set modes.
        exceptions: config
            .informer
            .rules
            .iter()
            .map(|rule| {
                let ResourceRule { pattern, modes: own, .. } = rule;
                (pattern.group.clone(), pattern.resource.clone(), own.over(reads.modes))
            })
            .collect(),
        not_synced: NotSynced { wait: reads.wait, forward: reads.then == Then::Forward },
        freshness_timeout: reads.freshness_timeout,
        shared_groups: reads.shared_groups.clone(),
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
