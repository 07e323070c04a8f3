//! What a scalar is: the rules of go-yaml v2, which are those of YAML 1.1 with some of 1.2.

use serde_json::{Number, Value};

use super::super::pem;

const NAMESPACE: &str = "tag:yaml.org,2002:";

/// A scalar, as go-yaml resolves it.
#[derive(Clone)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    /// Above the largest `i64`.
    Uint(u64),
    Float(f64),
    Text(String),
}

// === impl Scalar ===

impl Scalar {
    pub(super) fn value(self) -> Result<Value, String> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(is) => is.into(),
            Self::Int(number) => number.into(),
            Self::Uint(number) => number.into(),
            Self::Text(text) => text.into(),
            // As Go writes it, which is without a fraction if there is none.
            Self::Float(number) if number.fract() == 0.0 && number.abs() < 1e21 => {
                number.to_string().parse::<Number>().map_err(|error| error.to_string())?.into()
            }
            Self::Float(number) => Number::from_f64(number).ok_or(format!("{number} is no number of JSON"))?.into(),
        })
    }

    /// The name of a member.
    pub(super) fn key(self) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Bool(is) => Ok(is.to_string()),
            Self::Int(number) => Ok(number.to_string()),
            Self::Float(number) => Ok(short(number)),
            Self::Null => Err("null is no key".to_owned()),
            Self::Uint(number) => Err(format!("{number} is no key")),
        }
    }

    /// One that is not quoted, and has no tag.
    pub(super) fn plain(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => Self::Null,
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Self::Bool(true),
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Self::Bool(false),
            ".nan" | ".NaN" | ".NAN" => Self::Float(f64::NAN),
            ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Self::Float(f64::INFINITY),
            "-.inf" | "-.Inf" | "-.INF" => Self::Float(f64::NEG_INFINITY),
            _ if text.starts_with('.') => float(text).unwrap_or_else(|| Self::Text(text.to_owned())),
            _ if text.starts_with(|first: char| first.is_ascii_digit() || "+-".contains(first)) => {
                let digits = text.replace('_', "");
                integer(&digits).or_else(|| float(&digits)).unwrap_or_else(|| Self::Text(text.to_owned()))
            }
            _ => Self::Text(text.to_owned()),
        }
    }

    /// One that is quoted, or has a tag.
    pub(super) fn tagged(tag: Option<&str>, text: &str) -> Result<Self, String> {
        let (kind, scalar) = match tag.and_then(|tag| tag.strip_prefix(NAMESPACE)) {
            Some("binary") => {
                let bytes = pem::data(text).map_err(|_| "!!binary is no base64")?;
                return Ok(Self::Text(String::from_utf8_lossy(&bytes).into_owned()));
            }
            Some(kind @ ("null" | "bool" | "int" | "float")) => (kind, Self::plain(text)),
            _ => return Ok(Self::Text(text.to_owned())),
        };
        match (kind, scalar) {
            #[expect(clippy::cast_precision_loss, reason = "as Go does")]
            ("float", Self::Int(number)) => Ok(Self::Float(number as f64)),
            ("null", it @ Self::Null)
            | ("bool", it @ Self::Bool(_))
            | ("int", it @ (Self::Int(_) | Self::Uint(_)))
            | ("float", it @ Self::Float(_)) => Ok(it),
            _ => Err("a scalar is not what its tag says".to_owned()),
        }
    }
}

/// `strconv.ParseInt(text, 0, 64)`, or `ParseUint`.
fn integer(text: &str) -> Option<Scalar> {
    let (is_negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (base, digits) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', _, ..] => (16, &unsigned[2..]),
        [b'0', b'o' | b'O', _, ..] => (8, &unsigned[2..]),
        [b'0', b'b' | b'B', _, ..] => (2, &unsigned[2..]),
        [b'0', _, ..] => (8, &unsigned[1..]),
        _ => (10, unsigned),
    };
    // `from_str_radix` takes a sign.
    let number = u64::from_str_radix(digits, base).ok().filter(|_| !digits.starts_with('+'))?;
    match i64::try_from(number) {
        Ok(number) => Some(Scalar::Int(if is_negative { -number } else { number })),
        Err(_) if is_negative => 0_i64.checked_sub_unsigned(number).map(Scalar::Int),
        Err(_) => (unsigned == text).then_some(Scalar::Uint(number)),
    }
}

/// A decimal number. One that is too large is none.
fn float(text: &str) -> Option<Scalar> {
    // Rust takes `+inf` and `-nan` too.
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    text.parse::<f64>().ok().filter(|number| is_decimal && number.is_finite()).map(Scalar::Float)
}

/// `strconv.FormatFloat(number, 'g', -1, 32)`, with YAML's names of what is no number.
#[expect(clippy::cast_possible_truncation, reason = "as Go does")]
fn short(number: f64) -> String {
    let number = number as f32;
    if !number.is_finite() {
        let name = if number.is_nan() { ".nan" } else { ".inf" };
        return format!("{}{name}", if number == f32::NEG_INFINITY { "-" } else { "" });
    }
    let scientific = format!("{number:e}");
    match scientific.split_once('e').map(|(digits, exponent)| (digits, exponent.parse::<i32>().unwrap_or_default())) {
        Some((digits, exponent)) if !(-4..6).contains(&exponent) => {
            format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        }
        _ => number.to_string(),
    }
}
