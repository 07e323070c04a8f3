//! Objects that the apiserver takes for lists.

use memchr::memmem;

use super::scan::Scanner;

/// Whether a custom object has an array `items` beside its metadata. The apiserver takes it for a list of objects. A search
/// of the raw bytes excludes most objects without parsing.
pub fn is_list_like(item: &[u8]) -> bool {
    if memmem::find(item, b"\"items\"").is_none() {
        return false;
    }
    let mut found = false;
    let scanned = Scanner::new(item).object(|scanner, key| {
        found |= key.is("items") && scanner.peek()? == b'[';
        scanner.skip_value()
    });
    scanned.is_ok() && found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_array_beside_the_metadata_counts() {
        for (more, is_list) in [
            (r#""items":[]"#, true),
            (r#""items": [{"a":1}]"#, true),
            (r#""spec":{"items":[]},"items":[1]"#, true),
            (r#""items":{}"#, false),
            (r#""items":null"#, false),
            (r#""items":"[""#, false),
            (r#""spec":{"items":[]}"#, false),
            (r#""Items":[]"#, false),
            (r#""a":["items"]"#, false),
        ] {
            let item = format!(r#"{{"kind":"K","apiVersion":"x/v1","metadata":{{"name":"a"}},{more}}}"#);
            assert_eq!(is_list_like(item.as_bytes()), is_list, "{more}");
        }
    }
}
