//! The supported JSON paths of printer columns: members, array elements, and elements selected by a member's value.

use std::borrow::Cow;

use serde_json::Value;

/// A path such as `.status.conditions[?(@.type=="Ready")].lastTransitionTime`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Member(String),
    Element(usize),
    /// The elements of an array in which this member has this string value.
    Where(String, String),
}

// === impl Path ===

impl Path {
    /// Returns `None` for a path that is not supported.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(member) = rest.strip_prefix('.') {
                let (name, after) = member_name(member)?;
                steps.push(Step::Member(name));
                rest = after;
            } else {
                let (inner, after) = rest.strip_prefix('[')?.split_once(']')?;
                steps.push(bracket(inner)?);
                rest = after;
            }
        }
        (!steps.is_empty()).then_some(Self { steps })
    }

    /// The first value at the end of the path.
    pub(super) fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        let mut found = vec![object];
        for step in &self.steps {
            found = found.into_iter().flat_map(|value| step.of(value)).collect();
        }
        found.into_iter().next()
    }
}

/// Reads a name up to the next dot or bracket. A backslash escapes the next character.
fn member_name(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.push(chars.next()?.1),
            '.' | '[' => return (!name.is_empty()).then_some((name, text.get(at..)?)),
            c if c.is_alphanumeric() || matches!(c, '_' | '-' | '/') => name.push(c),
            _ => return None,
        }
    }
    (!name.is_empty()).then_some((name, ""))
}

/// Parses the text between brackets.
fn bracket(inner: &str) -> Option<Step> {
    if let Ok(index) = inner.parse() {
        return Some(Step::Element(index));
    }
    let Some(filter) = inner.strip_prefix("?(").and_then(|filter| filter.strip_suffix(')')) else {
        return quoted(inner).map(|name| Step::Member(name.into_owned()));
    };
    let (left, right) = filter.split_once("==")?;
    let (name, after) = member_name(left.trim().strip_prefix("@.")?)?;
    after.is_empty().then_some(())?;
    Some(Step::Where(name, quoted(right.trim())?.into_owned()))
}

fn quoted(text: &str) -> Option<Cow<'_, str>> {
    let inner = ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))?;
    if inner.contains(['\'', '"', ']']) {
        return None;
    }
    // Inside brackets too, a dot in a name may be escaped.
    Some(if inner.contains('\\') { Cow::Owned(inner.replace("\\.", ".")) } else { Cow::Borrowed(inner) })
        .filter(|name| !name.contains('\\'))
}

// === impl Step ===

impl Step {
    fn of<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Member(name) => value.get(name).into_iter().collect(),
            Self::Element(index) => value.get(index).into_iter().collect(),
            Self::Where(name, wanted) => value
                .as_array()
                .into_iter()
                .flatten()
                .filter(|element| element.get(name).and_then(Value::as_str) == Some(wanted))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn leads_to_the_first_value() {
        let object = json!({
            "metadata": {"annotations": {"a.b/c": "annotated"}},
            "spec": {"list": [{"at": 1}, {"at": 2}], "end": null},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "since": "r"},
                {"type": "Done", "since": "d"},
                {"type": "Done", "since": "later"},
            ]},
        });
        for (path, want) in [
            (".spec.list[1].at", Some(json!(2))),
            (".spec.end", Some(json!(null))),
            (r".metadata.annotations.a\.b/c", Some(json!("annotated"))),
            (r"['metadata'].annotations['a\.b/c']", Some(json!("annotated"))),
            (r#".status.conditions[?(@.type=="Ready")].since"#, Some(json!("r"))),
            (".status.conditions[?(@.type == 'Done')].since", Some(json!("d"))),
            (".status.conditions[?(@.type=='None')].since", None),
            (".status.conditions[9].since", None),
            (".spec.none.deeper", None),
        ] {
            assert_eq!(Path::parse(path).unwrap().first(&object), want.as_ref(), "{path}");
        }
    }

    #[test]
    fn what_is_more_is_not_understood() {
        for path in
            ["", ".", "spec", ".a..b", "..a", ".a[*]", ".a[0:1]", ".a[-1]", ".a[?(@.b>1)]", ".a[", ".a b", "{.a}"]
        {
            assert_eq!(Path::parse(path), None, "{path}");
        }
    }
}
