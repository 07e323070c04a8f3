//! The grammar of label selectors, and the apiserver's error messages for invalid ones.
//!
//! ```text
//! selector    = "" | requirement *( "," requirement )
//! requirement = ["!"] key | key op value | key ("in" | "notin") "(" [ value *( "," value ) ] ")"
//! op          = "=" | "==" | "!=" | ">" | "<"
//! ```
//!
//! `in` and `notin` are ordinary words except where an operator is expected. Spaces between tokens have no meaning.

use informerd_meta::strconv;

use super::requirement::{Operator, Requirement};

/// Parses a selector into its requirements, in the order in which they are written.
///
/// # Errors
/// The apiserver's message.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut tokens = Tokens::new(text);
    let mut requirements = Vec::new();
    match tokens.peek() {
        "" => return Ok(requirements),
        token if begins_requirement(token) => {}
        token => return Err(format!("found '{token}', expected: !, identifier, or 'end of string'")),
    }
    loop {
        let requirement =
            parse_requirement(&mut tokens).map_err(|error| format!("unable to parse requirement: {error}"))?;
        requirements.push(requirement);
        match tokens.next() {
            "" => return Ok(requirements),
            "," => {}
            token => return Err(format!("found '{token}', expected: ',' or 'end of string'")),
        }
        let token = tokens.peek();
        if !begins_requirement(token) {
            return Err(format!("found '{token}', expected: identifier after ','"));
        }
    }
}

/// Whether apiservers up to 1.34 refuse a selector that later ones accept: a set that ends with an even number of commas,
/// such as `x in (a,,)`.
pub(super) fn is_refused_by_some(text: &str) -> bool {
    let (mut tokens, mut commas) = (Tokens::new(text), 0);
    loop {
        match tokens.next() {
            "" => return false,
            "," => commas += 1,
            ")" if commas > 0 && commas % 2 == 0 => return true,
            _ => commas = 0,
        }
    }
}

/// Tokens are slices of the text; "" is the end of the text. A token that begins with a special character is an
/// operator or a bracket. Every other token is a word.
struct Tokens<'a> {
    rest: &'a str,
}

// === impl Tokens ===

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    fn peek(&self) -> &'a str {
        self.split().0
    }

    fn next(&mut self) -> &'a str {
        let (token, rest) = self.split();
        self.rest = rest;
        token
    }

    fn split(&self) -> (&'a str, &'a str) {
        let text = self.rest.trim_start_matches(is_blank);
        let special = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"].into_iter().find(|s| text.starts_with(s));
        if let Some(special) = special {
            let rest = &text[special.len()..];
            return (special, rest.strip_prefix('\0').unwrap_or(rest));
        }
        // The apiserver's lexer treats a NUL as an end: of the text, or of the token before it.
        let end = text.find(|c| is_blank(c) || is_special(c) || c == '\0').unwrap_or(text.len());
        match text[end..].strip_prefix('\0') {
            Some(_) if end == 0 => ("", ""),
            Some(rest) => (&text[..end], rest),
            None => text.split_at(end),
        }
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_word(token: &str) -> bool {
    token.chars().next().is_some_and(|first| !is_special(first))
}

fn begins_requirement(token: &str) -> bool {
    token == "!" || is_word(token)
}

fn parse_requirement(tokens: &mut Tokens<'_>) -> Result<Requirement, String> {
    let negated = tokens.peek() == "!";
    if negated {
        tokens.next();
    }
    let key = tokens.next();
    if !is_word(key) {
        return Err(format!("found '{key}', expected: identifier"));
    }
    validate_key(key)?;
    let requirement = |operator, values: Vec<&str>| Requirement {
        key: key.into(),
        operator,
        values: values.into_iter().map(Into::into).collect(),
    };
    // The caller checks the text after `!key`.
    if negated {
        return Ok(requirement(Operator::DoesNotExist, Vec::new()));
    }
    if matches!(tokens.peek(), "" | ",") {
        return Ok(requirement(Operator::Exists, Vec::new()));
    }
    let operator = match tokens.next() {
        "=" => Operator::Equals,
        "==" => Operator::DoubleEquals,
        "!=" => Operator::NotEquals,
        "in" => Operator::In,
        "notin" => Operator::NotIn,
        ">" => Operator::GreaterThan,
        "<" => Operator::LessThan,
        token => return Err(format!("found '{token}', expected: in, notin, =, ==, !=, gt, lt")),
    };
    let values = match operator {
        Operator::In | Operator::NotIn => parse_values(tokens)?,
        _ => vec![parse_value(tokens)?],
    };
    let numeric = matches!(operator, Operator::GreaterThan | Operator::LessThan);
    validate_values(key, &values, numeric)?;
    Ok(requirement(operator, values))
}

fn parse_value<'a>(tokens: &mut Tokens<'a>) -> Result<&'a str, String> {
    match tokens.peek() {
        "" | "," => Ok(""),
        token if is_word(token) => Ok(tokens.next()),
        token => Err(format!("found '{token}', expected: identifier")),
    }
}

/// Parses a set in parentheses and sorts it. Values may be missing around commas: each gap is an empty value, and an
/// empty set contains one empty value.
fn parse_values<'a>(tokens: &mut Tokens<'a>) -> Result<Vec<&'a str>, String> {
    match tokens.next() {
        "(" => {}
        token => return Err(format!("found '{token}' expected: '('")),
    }
    match tokens.peek() {
        ")" | "," => {}
        token if is_word(token) => {}
        token => return Err(format!("found '{token}', expected: ',', ')' or identifier")),
    }
    let mut values = Vec::new();
    loop {
        match tokens.next() {
            ")" => {
                if values.is_empty() {
                    values.push("");
                }
                values.sort_unstable();
                values.dedup();
                return Ok(values);
            }
            "," => {
                if values.is_empty() || matches!(tokens.peek(), "," | ")") {
                    values.push("");
                }
            }
            word if is_word(word) => {
                values.push(word);
                let token = tokens.peek();
                if !matches!(token, "," | ")") {
                    return Err(format!("found '{token}', expected: ',' or ')'"));
                }
            }
            token => return Err(format!("found '{token}', expected: ',', or identifier")),
        }
    }
}

// === validation ===

const NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const KEY: &str = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end \
     with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. \
     'example.com/MyName')";
const PREFIX: &str = "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, \
     '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation \
     is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
     must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
     validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

fn validate_key(key: &str) -> Result<(), String> {
    let mut errors = Vec::new();
    let parts: Vec<&str> = key.split('/').collect();
    let name = match parts[..] {
        [name] => Some(name),
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty");
            } else {
                if prefix.len() > 253 {
                    errors.push("prefix part must be no more than 253 bytes");
                }
                if !is_subdomain(prefix) {
                    errors.push(PREFIX);
                }
            }
            Some(name)
        }
        _ => {
            errors.push(KEY);
            None
        }
    };
    if let Some(name) = name {
        if name.is_empty() {
            errors.push("name part must be non-empty");
        } else if name.len() > 63 {
            errors.push("name part must be no more than 63 bytes");
        }
        if !is_name(name) {
            errors.push(NAME);
        }
    }
    // The key has no field path, so the apiserver prints the missing path.
    if errors.is_empty() { Ok(()) } else { Err(format!("<nil>: {}", invalid(key, &errors.join("; ")))) }
}

/// The most errors of one set of values. Each quotes its value, and explains what is wrong in some 300 bytes.
const MAX_ERRORS: usize = 16;

/// Reports the errors: a single error as it is, several errors in brackets.
fn validate_values(key: &str, values: &[&str], numeric: bool) -> Result<(), String> {
    let mut errors = Vec::new();
    if numeric {
        for (i, value) in values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err()) {
            let detail = invalid(value, "for 'Gt', 'Lt' operators, the value must be an integer");
            errors.push(format!("values[{i}]: {detail}"));
        }
    }
    for (i, value) in values.iter().enumerate() {
        let mut details = Vec::new();
        if value.len() > 63 {
            details.push("must be no more than 63 bytes");
        }
        if !value.is_empty() && !is_name(value) {
            details.push(VALUE);
        }
        if !details.is_empty() {
            errors.push(format!("values[{i}][{key}]: {}", invalid(value, &details.join("; "))));
        }
        if errors.len() >= MAX_ERRORS {
            break;
        }
    }
    match errors.len() {
        0 => Ok(()),
        1 => Err(errors.remove(0)),
        _ => Err(format!("[{}]", errors.join(", "))),
    }
}

fn invalid(value: &str, detail: &str) -> String {
    format!("Invalid value: {}: {detail}", strconv::quote(value.as_bytes()))
}

/// Letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_name(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    ends(bytes.first())
        && ends(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn is_subdomain(text: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.split('.').map(str::as_bytes).all(|label| {
        label.first().is_some_and(alphanumeric)
            && label.last().is_some_and(alphanumeric)
            && label.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
    })
}
