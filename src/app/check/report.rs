//! The result of `informerd check`, and its text form.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::config::{ResourcePattern, ResourceRule};

/// The most resources that are named in one line. Beyond that, only their number is shown.
const NAMED: usize = 6;

/// Whether our identity may list and watch something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct May {
    pub(super) list: bool,
    pub(super) watch: bool,
}

/// A resource of the apiserver that has both verbs, and what our identity may do with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) resource: ResourcePattern,
    pub(super) everywhere: May,
    /// If it may not be read everywhere: the namespaces that were also checked.
    pub(super) within: Vec<(String, May)>,
}

/// The results of the checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) server: String,
    pub(super) version: String,
    pub(super) access: Vec<Access>,
    pub(super) needed: Vec<Needed>,
}

/// A right in addition to list and watch that the configuration needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Needed {
    /// The right, such as `create tokenreviews.authentication.k8s.io`, and its purpose.
    pub(super) what: &'static str,
    pub(super) why: &'static str,
    pub(super) allowed: bool,
}

// === impl Report ===

impl Report {
    /// The text to print, and the problems: none if everything that the configuration needs is available.
    pub(super) fn render(&self, rules: &[ResourceRule]) -> (String, Vec<&'static str>) {
        let mut text = String::new();
        let mut wrong = Vec::new();
        let may = self.access.iter().filter(|access| access.everywhere.both()).count();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "apiserver: {} {}", self.server, self.version);
        let _ = writeln!(text, "may list and watch in all namespaces: {may} of {} resources", self.access.len());
        for (namespace, may, of) in self.within() {
            let _ = writeln!(text, "of the others, in the namespace {namespace}: {may} of {of}");
        }
        if may == 0 && self.within().iter().all(|(_, may, _)| *may == 0) {
            wrong.push("the daemon's identity may list and watch nothing, so every read would be forwarded");
        }
        if !self.resources(rules, &mut text) {
            wrong.push("what the configuration pins cannot be cached");
        }
        for needed in self.needed.iter().filter(|needed| !needed.allowed) {
            let _ = writeln!(text, "  may not {}: {}", needed.what, needed.why);
            wrong.push("the daemon's identity lacks rights that the configuration needs");
        }
        wrong.dedup();
        (text, wrong)
    }

    /// Writes a line for each resource, or each reason, that reads are forwarded for. Returns whether all pinned
    /// resources can be cached.
    fn resources(&self, rules: &[ResourceRule], text: &mut String) -> bool {
        let mut good = true;
        // Grouped by reason: an identity with few rights would fill the screen otherwise.
        let mut forbidden: BTreeMap<(Option<&str>, &str), Vec<String>> = BTreeMap::new();
        for access in &self.access {
            let rule = rules.iter().find(|rule| rule.pattern.covers(&access.resource));
            let name = access.resource.to_string();
            let excluded = match rule {
                Some(rule) if rule.exclude => Some("excluded by the configuration"),
                Some(rule) if rule.pattern.resource != "*" => None,
                _ if name == "secrets" => Some("excluded by default"),
                _ => None,
            };
            if let Some(why) = excluded {
                let _ = writeln!(text, "  {name}: forwarded, {why}");
                continue;
            }
            let scopes = rule.map_or(&[][..], |rule| &rule.namespaces);
            let missing = access.missing(scopes);
            for place in &missing {
                forbidden.entry(*place).or_default().push(name.clone());
            }
            if rule.is_some_and(|rule| rule.pin) && !missing.is_empty() {
                let _ = writeln!(text, "  {name}: is pinned, but cannot be cached");
                good = false;
            }
        }
        for ((namespace, why), names) in forbidden {
            let shown = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
            let place = namespace.map(|namespace| format!(" in the namespace {namespace}")).unwrap_or_default();
            let _ = match names.len().saturating_sub(NAMED) {
                0 => writeln!(text, "  forwarded{place}, {why}: {shown}"),
                more => writeln!(text, "  forwarded{place}, {why}: {shown} and {more} more"),
            };
        }
        for rule in rules.iter().filter(|rule| rule.pin) {
            if !self.access.iter().any(|access| rule.pattern.covers(&access.resource)) {
                let _ = writeln!(text, "  {}: is pinned, but the apiserver has no such resource", rule.pattern);
                good = false;
            }
        }
        good
    }

    /// Each namespace that was checked, the number of resources that may be read in it, and the number that was
    /// checked.
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
    pub(super) fn both(self) -> bool {
        self.list && self.watch
    }

    /// The missing right, in words.
    fn lack(self) -> Option<&'static str> {
        match (self.list, self.watch) {
            (true, true) => None,
            (true, false) => Some("the daemon may not watch it"),
            (false, true) => Some("the daemon may not list it"),
            (false, false) => Some("the daemon may neither list nor watch it"),
        }
    }
}

// === impl Access ===

impl Access {
    /// The scopes of its rule in which it cannot be cached, with the reason: the namespaces that the rule names, or
    /// otherwise all namespaces together.
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let access = |group: &str, resource: &str, list, watch| Access {
            resource: ResourcePattern { group: group.to_owned(), resource: resource.to_owned() },
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
            needed: Vec::new(),
        }
    }

    fn rule(pattern: &str, pin: bool, exclude: bool) -> ResourceRule {
        ResourceRule { exclude, pin, ..ResourceRule::new(pattern.parse().unwrap()) }
    }

    #[test]
    fn tells_what_is_forwarded_and_why() {
        let (text, wrong) = report().render(&[]);
        let wanted = "apiserver: https://a:6443/ v1.36.3\n\
                      may list and watch in all namespaces: 2 of 3 resources\n  \
                      secrets: forwarded, excluded by default\n  \
                      forwarded, the daemon may not watch it: deployments.apps\n";
        assert_eq!(text, wanted);
        assert!(wrong.is_empty(), "what may not be cached is forwarded");
    }

    #[test]
    fn follows_the_rules() {
        let (text, wrong) = report().render(&[rule("pods", true, false), rule("secrets", false, false)]);
        assert!(wrong.is_empty() && !text.contains("secrets:"), "{text}");
        let (text, _) = report().render(&[rule("*", false, false)]);
        assert!(text.contains("secrets: forwarded, excluded by default"), "{text}");
        let (text, _) = report().render(&[rule("pods", false, true)]);
        assert!(text.contains("pods: forwarded, excluded by the configuration"), "{text}");
    }

    #[test]
    fn a_pin_that_cannot_be_held_fails() {
        let (text, wrong) = report().render(&[rule("deployments.apps", true, false)]);
        assert_eq!(wrong, ["what the configuration pins cannot be cached"]);
        assert!(text.contains("deployments.apps: is pinned, but cannot be cached"), "{text}");
        let (text, wrong) = report().render(&[rule("widgets.example.com", true, false)]);
        assert!(!wrong.is_empty() && text.contains("has no such resource"), "{text}");
        let mut report = report();
        let scoped = ResourceRule { namespaces: vec!["a".to_owned()], ..rule("deployments.apps", true, false) };
        for (list, good, told) in [
            (true, true, ""),
            (false, false, "forwarded in the namespace a, the daemon may not list it: deployments.apps\n"),
        ] {
            report.access[2].within = vec![("a".to_owned(), May { list, watch: true })];
            let (text, wrong) = report.render(std::slice::from_ref(&scoped));
            assert!(wrong.is_empty() == good && text.contains(told), "{text}");
            assert!(text.contains(&format!("in the namespace a: {} of 1\n", u8::from(list))), "{text}");
        }
    }

    #[test]
    fn an_identity_without_rights_is_told_shortly() {
        let mut report = report();
        report.access = (0..60)
            .map(|n| Access {
                resource: ResourcePattern { group: String::new(), resource: format!("things{n:02}") },
                everywhere: May { list: false, watch: false },
                within: vec![("default".to_owned(), May { list: n < 2, watch: true })],
            })
            .collect();
        let (text, wrong) = report.render(&[]);
        assert!(wrong.is_empty() && text.lines().count() == 4, "{text}");
        assert!(text.contains("of the others, in the namespace default: 2 of 60\n"), "{text}");
        assert!(
            text.contains("nor watch it: things00, things01, things02, things03, things04, things05 and 54 more\n")
        );
    }

    #[test]
    fn an_identity_that_may_read_nothing_is_wrong() {
        let mut report = report();
        for access in &mut report.access {
            access.everywhere.list = false;
        }
        let (_, wrong) = report.render(&[]);
        assert_eq!(wrong, ["the daemon's identity may list and watch nothing, so every read would be forwarded"]);
        report.access[0].within = vec![("a".to_owned(), May { list: true, watch: true })];
        assert!(report.render(&[]).1.is_empty(), "one resource in one namespace is something");
    }

    #[test]
    fn tells_which_rights_the_configuration_needs() {
        let mut report = report();
        let needed = |what, allowed| Needed { what, why: "so it is", allowed };
        report.needed = vec![needed("create these", false), needed("create those", false), needed("get it", true)];
        let (text, wrong) = report.render(&[]);
        assert!(text.ends_with("  may not create these: so it is\n  may not create those: so it is\n"), "{text}");
        assert_eq!(wrong, ["the daemon's identity lacks rights that the configuration needs"]);
    }
}
