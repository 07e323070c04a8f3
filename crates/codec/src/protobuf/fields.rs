//! Extracts the values of a field table by field number.

use std::borrow::Cow;

use informerd_meta::FieldValue;

use super::wire::{Fields, Result, Value};

/// The value of a selectable field, in the form in which selectors compare it.
pub(super) fn field_value<'a>(message: &'a [u8], field: &FieldValue) -> Result<Cow<'a, str>> {
    let mut found = scalar(message, &field.numbers, field.missing)?;
    if found.as_deref().unwrap_or("").is_empty() && !field.fallback_numbers.is_empty() {
        found = scalar(message, &field.fallback_numbers, field.missing)?.or(found);
    }
    Ok(found.unwrap_or(Cow::Borrowed(field.missing)))
}

/// The value at the path of field numbers. Of a list, only the first element counts: no field table needs another.
fn scalar<'a>(message: &'a [u8], numbers: &[u32], missing: &str) -> Result<Option<Cow<'a, str>>> {
    let Some((&number, deeper)) = numbers.split_first() else { return Ok(None) };
    let mut fields = Fields::new(message);
    while let Some(field) = fields.next()? {
        if field.number != number {
            continue;
        }
        if !deeper.is_empty() {
            return scalar(field.value.bytes("a selectable field's message")?, deeper, missing);
        }
        return Ok(Some(match field.value {
            // The default for a missing value tells a boolean from a number.
            Value::Varint(flag) if missing == "false" => Cow::Borrowed(if flag == 0 { "false" } else { "true" }),
            Value::Varint(number) => Cow::Owned(number.cast_signed().to_string()),
            value => value.lossy("a selectable field")?,
        }));
    }
    Ok(None)
}
