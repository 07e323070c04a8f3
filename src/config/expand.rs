//! Replaces `$(NAME)` in a value by an environment variable, as in a pod's container arguments.

use super::Source;

/// Replaces every `$(NAME)`. `$$(NAME)` becomes a literal `$(NAME)`.
///
/// # Errors
/// The message names the variables that are unset, empty or not readable. If `NODE_NAME` of a node agent is missing,
/// it must not silently select nothing or everything.
pub(super) fn expand(text: &str, source: &dyn Source) -> Result<String, String> {
    let (mut expanded, mut rest, mut missing) = (String::with_capacity(text.len()), text, Vec::new());
    while let Some(dollar) = rest.find('$') {
        expanded.push_str(&rest[..dollar]);
        rest = &rest[dollar..];
        if let Some(escaped) = rest.strip_prefix("$$") {
            expanded.push('$');
            rest = escaped;
            continue;
        }
        let name = rest.strip_prefix("$(").and_then(|inside| inside.split_once(')'));
        let Some((name, after)) = name.filter(|(name, _)| is_name(name)) else {
            expanded.push('$');
            rest = &rest[1..];
            continue;
        };
        match source.variable(name) {
            Ok(Some(value)) if !value.is_empty() => expanded.push_str(&value),
            Ok(Some(_)) => missing.push(format!("$({name}): the environment variable {name} is empty")),
            Ok(None) => missing.push(format!("$({name}): the environment variable {name} is not set")),
            Err(reason) => missing.push(format!("$({name}): the environment variable {name} {reason}")),
        }
        rest = after;
    }
    expanded.push_str(rest);
    if missing.is_empty() { Ok(expanded) } else { Err(missing.join("; ")) }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::super::source::MadeUp;
    use super::*;

    #[test]
    fn expands() {
        let world = MadeUp::default().variable("NODE_NAME", "node-1").variable("EMPTY", "");
        let expanded = |text: &str| expand(text, &world);
        assert_eq!(expanded("spec.nodeName=$(NODE_NAME)").unwrap(), "spec.nodeName=node-1");
        assert_eq!(expanded("$(NODE_NAME)$(NODE_NAME)").unwrap(), "node-1node-1");
        assert_eq!(expanded("a $ b $HOME $() $(1X) $(NODE NAME) $").unwrap(), "a $ b $HOME $() $(1X) $(NODE NAME) $");
        assert_eq!(expanded("$$(NODE_NAME) $$").unwrap(), "$(NODE_NAME) $");
        assert!(expanded("$(NO_SUCH)").unwrap_err().contains("NO_SUCH is not set"));
        assert!(expanded("$(EMPTY) $(NO_SUCH)").unwrap_err().contains("EMPTY is empty; $(NO_SUCH)"));
    }
}
