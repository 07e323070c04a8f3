//! Removes annotations from metadata. All other bytes stay unchanged.

use std::ops::Range;

use super::scan::{Result, Scanner};

/// Returns the range of the metadata to replace so that these annotations are removed, and its replacement. Returns
/// `None` if the metadata has none of them. If no annotation remains, the whole `annotations` member is removed.
pub(super) fn without(metadata: &[u8], names: &[&str]) -> Result<Option<(Range<usize>, Vec<u8>)>> {
    let (mut change, mut end_of_last) = (None, None);
    Scanner::new(metadata).object(|scanner, member| {
        if !member.is("annotations") || scanner.peek()? != b'{' {
            scanner.skip_value()?;
            end_of_last = Some(scanner.position());
            return Ok(());
        }
        let start = scanner.position();
        let (mut kept, mut dropped) = (Vec::new(), false);
        scanner.object(|scanner, name| {
            scanner.skip_value()?;
            if names.iter().any(|unwanted| name.is(unwanted)) {
                dropped = true;
            } else {
                kept.push(if kept.is_empty() { b'{' } else { b',' });
                kept.extend_from_slice(scanner.since(name.start));
            }
            Ok(())
        })?;
        let end = scanner.position();
        if dropped && !kept.is_empty() {
            kept.push(b'}');
            change = Some((start..end, kept));
        } else if dropped {
            // Remove the member with the comma before it. The first member is removed with the comma after it.
            let comma = usize::from(metadata.get(end) == Some(&b','));
            change = Some((end_of_last.map_or(member.start..end + comma, |before| before..end), kept));
        }
        Ok(())
    })?;
    Ok(change)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    fn applied(metadata: &str, names: &[&str]) -> String {
        let Some((range, new)) = without(metadata.as_bytes(), names).unwrap() else { return metadata.to_owned() };
        let mut out = metadata.to_owned();
        out.replace_range(range, std::str::from_utf8(&new).unwrap());
        out
    }

    #[test]
    fn nothing_else_is_touched() {
        for (metadata, expected) in [
            (r#"{"annotations":{"a":"1","b":"\u003c"}}"#, r#"{"annotations":{"b":"\u003c"}}"#),
            (r#"{"annotations":{"a":"1"},"z":{"annotations":{"a":"2"}}}"#, r#"{"z":{"annotations":{"a":"2"}}}"#),
            (r#"{"annotations":null,"name":"a"}"#, r#"{"annotations":null,"name":"a"}"#),
            (r#"{"annotations":{},"name":"a"}"#, r#"{"annotations":{},"name":"a"}"#),
        ] {
            assert_eq!(applied(metadata, &["a", "c"]), expected);
        }
    }

    proptest! {
        #[test]
        fn as_a_tree_does_it(
            before in proptest::option::of(".*"),
            annotations in proptest::collection::btree_map("[a-d]", ".*", 0..5),
            after in proptest::option::of(".*"),
        ) {
            let annotations: Map<String, Value> = annotations.into_iter().map(|(key, value)| (key, json!(value))).collect();
            let object = |annotations: &Map<String, Value>, empty: bool| {
                let mut object = Map::new();
                before.iter().for_each(|text| drop(object.insert("A".to_owned(), json!(text))));
                if empty || !annotations.is_empty() {
                    object.insert("annotations".to_owned(), json!(annotations));
                }
                after.iter().for_each(|text| drop(object.insert("z".to_owned(), json!(text))));
                Value::Object(object).to_string()
            };
            let mut kept = annotations.clone();
            kept.retain(|name, _| name != "b" && name != "d");
            let untouched = kept.len() == annotations.len();
            prop_assert_eq!(applied(&object(&annotations, true), &["b", "d"]), object(&kept, untouched));
        }
    }
}
