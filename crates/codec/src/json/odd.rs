//! Names an object that cannot be decoded, as far as it can be read.

use super::scan::{Result, Scanner};

/// What was found of the name so far.
#[derive(Default)]
struct Found {
    namespace: String,
    name: Option<String>,
}

/// Objects are in this depth at most: in a row, of a table, of a frame.
const LEVELS: u8 = 4;

/// The name of the first object in these bytes, and its namespace: an object, a row, or the frame of a watch. They may
/// be incomplete or malformed.
pub(crate) fn named(bytes: &[u8]) -> Option<String> {
    let (mut scanner, mut found) = (Scanner::new(bytes), Found::default());
    scanner.skip_spaces();
    // An error ends the search. What was found before it counts.
    let _ = search(&mut scanner, LEVELS, &mut found);
    crate::odd_name(&found.namespace, &found.name?)
}

fn search(scanner: &mut Scanner<'_>, levels: u8, found: &mut Found) -> Result<()> {
    scanner.object(|scanner, key| {
        let next = scanner.peek()?;
        if levels > 0 && next == b'{' && key.is("object") {
            return search(scanner, levels - 1, found);
        }
        if levels > 0 && next == b'[' && key.is("rows") {
            return scanner.array(|scanner, _| search(scanner, levels - 1, found));
        }
        if next != b'{' || !key.is("metadata") {
            return scanner.skip_value();
        }
        scanner.object(|scanner, key| {
            match (scanner.peek()?, key.is("name"), key.is("namespace")) {
                (b'"', true, _) => found.name = Some(scanner.string()?.get().into_owned()),
                (b'"', _, true) => found.namespace = scanner.string()?.get().into_owned(),
                _ => scanner.skip_value()?,
            }
            Ok(())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_name_in_what_cannot_be_decoded() {
        let metadata = r#""metadata":{"name":"n","labels":{"a":"b"},"namespace":"s","resourceVersion":7}"#;
        for (text, name) in [
            (format!("{{{metadata}}}"), Some("s/n")),
            (format!(r#"{{"type":"ADDED","object":{{"kind":"Pod",{metadata},"spec":"#), Some("s/n")),
            (format!(r#"{{"cells":["x"],"object":{{{metadata}}}}}"#), Some("s/n")),
            (
                format!(r#"{{"type":"ADDED","object":{{"rows":[{{"cells":[],"object":{{{metadata}}}}}]}}}}"#),
                Some("s/n"),
            ),
            (r#"{"metadata":{"name":"n","namespace""#.to_owned(), Some("n")),
            (r#"{"metadata":{"name":5}}"#.to_owned(), None),
            (format!("{}1{}", r#"{"object":"#.repeat(100_000), "}".repeat(100_000)), None),
            ("<html>".to_owned(), None),
        ] {
            assert_eq!(named(text.as_bytes()).as_deref(), name, "{text:.80}");
        }
    }
}
