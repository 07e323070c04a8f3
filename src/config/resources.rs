//! The rules of `resources`: which resources are cached, in which scope, and with which consistency.

use std::str::FromStr;

use super::file::{Node, Value};
use super::mistake::MOST_SUGGESTED;
use super::nearest;
use super::parse::{
    is_dns_label, is_dns_name, parse_bool, parse_consistent_reads, parse_packing_form, parse_protobuf, parse_while_away,
};
use super::removed::ONE_MODE;
use crate::packing::PackingForm;
use crate::reads::{ConsistentReads, Modes, ProtobufReads};
use crate::selector::{FieldSelector, LabelSelector};

const KEYS: &[&str] = &[
    "resource",
    "exclude",
    "pin",
    "namespaces",
    "fieldSelector",
    "labelSelector",
    "consistentReads",
    "protobuf",
    "whileAway",
    "form",
    "snapshot",
];

/// `pods`, `deployments.apps`, `*.example.com`, `*.core` or `*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourcePattern {
    /// `*` for every group. "" is the core group.
    pub group: String,
    /// `*` for every resource of the group; otherwise the plural name.
    pub resource: String,
}

/// One rule. It applies to every version of the resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRule {
    pub pattern: ResourcePattern,
    /// Always forward, never cache.
    pub exclude: bool,
    /// Start immediately and never stop when idle.
    pub pin: bool,
    /// Empty means all namespaces.
    pub namespaces: Vec<String>,
    /// At most one of the two selectors is set.
    pub field_selector: String,
    pub label_selector: String,
    pub modes: RuleModes,
    /// Whether its objects are packed, if it differs from the global setting.
    pub form: Option<PackingForm>,
    /// Whether it may be kept on disk.
    pub snapshot: bool,
}

/// The rule's settings for consistent reads and encodings. An unset value is inherited from the global settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleModes {
    pub consistent: Option<ConsistentReads>,
    pub protobuf: Option<ProtobufReads>,
    pub while_away: Option<bool>,
}

/// A mistake in the rules: its line, its path below `resources`, and a message.
pub(super) type RuleMistake = (u64, String, String);

/// Expands `$(NAME)` in a text.
pub(super) type Expand<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// Parses all of `resources`. Invalid rules are reported and omitted.
pub(super) fn parse_rules(node: &Node, expand: Expand<'_>, mistakes: &mut Vec<RuleMistake>) -> Vec<ResourceRule> {
    let Value::Sequence(nodes) = &node.value else {
        mistakes.push((node.line, String::new(), format!("want a sequence of rules, not {}", node.describe())));
        return Vec::new();
    };
    let mut rules: Vec<ResourceRule> = Vec::new();
    for (index, node) in nodes.iter().enumerate() {
        let place = format!("[{index}]");
        let Value::Mapping(entries) = &node.value else {
            mistakes.push((node.line, place, format!("want a mapping, not {}", node.describe())));
            continue;
        };
        let mut reader = RuleReader { expand, place, mistakes };
        if let Some(rule) = reader.rule(node.line, entries) {
            if let Some(earlier) = rules.iter().find(|earlier| earlier.pattern.covers(&rule.pattern)) {
                let message = format!("can never apply, rule {} decides first", earlier.pattern);
                mistakes.push((node.line, format!("[{index}].resource"), message));
            }
            rules.push(rule);
        }
    }
    rules
}

struct RuleReader<'a> {
    expand: Expand<'a>,
    place: String,
    mistakes: &'a mut Vec<RuleMistake>,
}

// === impl ResourceRule ===

impl ResourceRule {
    /// The rule that changes nothing.
    pub fn new(pattern: ResourcePattern) -> Self {
        Self {
            pattern,
            exclude: false,
            pin: false,
            namespaces: Vec::new(),
            field_selector: String::new(),
            label_selector: String::new(),
            modes: RuleModes::default(),
            form: None,
            snapshot: true,
        }
    }
}

// === impl RuleReader ===

impl RuleReader<'_> {
    fn rule(&mut self, line: u64, entries: &[(Node, Node)]) -> Option<ResourceRule> {
        let before = self.mistakes.len();
        let mut pattern = None;
        let mut rule = ResourceRule::new(ResourcePattern { group: String::new(), resource: String::new() });
        for (name, node) in entries {
            match name.scalar().unwrap_or_default() {
                "resource" => pattern = self.text("resource", node, ResourcePattern::from_str),
                "exclude" => rule.exclude = self.text("exclude", node, parse_bool).unwrap_or_default(),
                "pin" => rule.pin = self.text("pin", node, parse_bool).unwrap_or_default(),
                "namespaces" => rule.namespaces = self.namespaces(node),
                "fieldSelector" => {
                    rule.field_selector = self.text("fieldSelector", node, parse_field_selector).unwrap_or_default();
                }
                "labelSelector" => {
                    rule.label_selector = self.text("labelSelector", node, parse_label_selector).unwrap_or_default();
                }
                "consistentReads" => {
                    rule.modes.consistent = match node.value {
                        Value::Mapping(_) => {
                            self.wrong(name.line, ".consistentReads", ONE_MODE);
                            None
                        }
                        _ => self.text("consistentReads", node, parse_consistent_reads),
                    };
                }
                "protobuf" => rule.modes.protobuf = self.text("protobuf", node, parse_protobuf),
                "whileAway" => rule.modes.while_away = self.text("whileAway", node, parse_while_away),
                "snapshot" => rule.snapshot = self.text("snapshot", node, parse_bool).unwrap_or(true),
                "form" => rule.form = self.text("form", node, parse_packing_form),
                unknown => self.unknown(name.line, unknown),
            }
        }
        let names = |wanted: &str| entries.iter().any(|(name, _)| name.scalar() == Some(wanted));
        if !names("resource") {
            self.wrong(line, "", "names no resource");
        }
        if !rule.field_selector.is_empty() && !rule.label_selector.is_empty() {
            self.wrong(line, "", "give a fieldSelector or a labelSelector, not both");
        }
        if rule.exclude && (rule.pin || KEYS[3..].iter().any(|key| names(key))) {
            self.wrong(line, "", "an excluded resource is never cached: the other settings would have no effect");
        }
        rule.pattern = pattern?;
        if rule.pin && (rule.pattern.resource == "*" || rule.pattern.group == "*") {
            self.wrong(line, ".pin", "only a resource that is named can be pinned");
        }
        (self.mistakes.len() == before).then_some(rule)
    }

    fn text<T>(&mut self, key: &str, node: &Node, parse: fn(&str) -> Result<T, String>) -> Option<T> {
        let parsed = node.single().and_then(self.expand).and_then(|text| parse(&text));
        parsed.map_err(|message| self.wrong(node.line, &format!(".{key}"), message)).ok()
    }

    fn namespaces(&mut self, node: &Node) -> Vec<String> {
        let nodes = match &node.value {
            Value::Sequence(nodes) => nodes.as_slice(),
            _ => std::slice::from_ref(node),
        };
        if nodes.is_empty() {
            self.wrong(node.line, ".namespaces", "is empty; leave it out for all namespaces");
        }
        nodes.iter().filter_map(|node| self.text("namespaces", node, parse_namespace)).collect()
    }

    fn unknown(&mut self, line: u64, key: &str) {
        let last = key.rsplit('.').next().unwrap_or(key);
        let suggests = self.mistakes.len() < MOST_SUGGESTED;
        let message = match nearest(last, KEYS.iter().copied().filter(|_| suggests)) {
            Some(known) => format!("there is no such setting; did you mean {known}?"),
            None => format!("there is no such setting; there are {}", KEYS.join(", ")),
        };
        self.wrong(line, &format!(".{key}"), message);
    }

    fn wrong(&mut self, line: u64, key: &str, message: impl Into<String>) {
        self.mistakes.push((line, format!("{}{key}", self.place), message.into()));
    }
}

// === impl ResourcePattern ===

impl ResourcePattern {
    /// Whether this pattern matches every resource that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        (self.group == "*" || self.group == other.group) && (self.resource == "*" || self.resource == other.resource)
    }
}

impl FromStr for ResourcePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (resource, group) = match text.split_once('.') {
            None if text == "*" => ("*", "*"),
            None => (text, ""),
            Some((resource, "core")) => (resource, ""),
            Some((resource, group)) => (resource, group),
        };
        let is_resource = resource == "*" || is_dns_name(resource);
        let is_group = group.is_empty() || group == "*" || is_dns_name(group);
        if !is_resource || !is_group || text.ends_with('.') {
            return Err(format!(
                "{text:?} names no resource: want a plural name and its group, such as pods, deployments.apps, *.example.com or *"
            ));
        }
        Ok(Self { group: group.to_owned(), resource: resource.to_owned() })
    }
}

impl std::fmt::Display for ResourcePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.resource.as_str(), self.group.as_str()) {
            ("*", "*") => f.write_str("*"),
            ("*", "") => f.write_str("*.core"),
            (resource, "") => f.write_str(resource),
            (resource, group) => write!(f, "{resource}.{group}"),
        }
    }
}

// === impl RuleModes ===

impl RuleModes {
    /// The settings for the rule's resources: those of the rule, or else `modes`.
    pub fn over(self, modes: Modes) -> Modes {
        Modes {
            consistent: self.consistent.unwrap_or(modes.consistent),
            protobuf: self.protobuf.unwrap_or(modes.protobuf),
            while_away: self.while_away.unwrap_or(modes.while_away),
        }
    }
}

/// A DNS label, which the apiserver requires for the name of a namespace.
fn parse_namespace(text: &str) -> Result<String, String> {
    if is_dns_label(text) { Ok(text.to_owned()) } else { Err(format!("{text:?} is no name of a namespace")) }
}

fn parse_field_selector(text: &str) -> Result<String, String> {
    FieldSelector::parse(text).map(|_| text.to_owned())
}

fn parse_label_selector(text: &str) -> Result<String, String> {
    LabelSelector::parse(text).map(|_| text.to_owned())
}
