//! ID tokens: JSON Web Tokens (RFC 7519), of which only the time of expiry is read. The apiserver verifies them.

use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::HeaderValue;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::kubeconfig::authorization::bearer;

/// How long before its expiry a token counts as expired, in seconds, as in client-go: clocks differ.
const EARLY: i64 = 10;

/// Without padding. As Go, it takes any bits after the last byte.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone),
);

pub(super) struct IdToken {
    pub(super) header: HeaderValue,
    /// In seconds of Unix time.
    expires: i64,
}

#[derive(Deserialize)]
struct Claims {
    exp: Option<Value>,
}

// === impl IdToken ===

impl IdToken {
    /// # Errors
    /// It is no JSON Web Token, or cannot be sent. The message has nothing of the token.
    pub(super) fn parse(token: &str) -> Result<Self, String> {
        let parts: Vec<_> = token.split('.').collect();
        let &[_, claims, _] = parts.as_slice() else { return Err("it is no JWT".to_owned()) };
        let claims = BASE64.decode(claims).ok().and_then(|json| serde_json::from_slice::<Claims>(&json).ok());
        let Claims { exp } = claims.ok_or("the claims of the JWT cannot be read")?;
        let expires = match exp {
            // As client-go: it has expired.
            None => 0,
            Some(exp) => seconds(&exp).ok_or("the exp of the JWT is no time")?,
        };
        Ok(Self { header: bearer(token)?, expires })
    }

    pub(super) fn is_fresh(&self) -> bool {
        Timestamp::now().as_second().saturating_add(EARLY) < self.expires
    }
}

/// Reads a time in seconds: a number, or a number in quotes.
fn seconds(exp: &Value) -> Option<i64> {
    let text = match exp {
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        _ => return None,
    };
    // As Go, which drops the fraction.
    #[expect(clippy::cast_possible_truncation, reason = "what is too large is as large as possible")]
    let whole = |number: f64| number as i64;
    text.parse().ok().or_else(|| text.parse().ok().filter(|number: &f64| number.is_finite()).map(whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(claims: &str) -> Result<IdToken, String> {
        IdToken::parse(&format!("e30.{}.c2ln", BASE64.encode(claims)))
    }

    #[test]
    fn the_expiry_is_read_as_in_go() {
        for (claims, expires) in [
            (r#"{"exp":1700000000}"#, 1_700_000_000),
            (r#"{"exp":1700000000.9,"exp2":1}"#, 1_700_000_000),
            (r#"{"exp":1.7e9}"#, 1_700_000_000),
            (r#"{"exp":"1700000000"}"#, 1_700_000_000),
            (r#"{"exp":1e300}"#, i64::MAX),
            (r#"{"sub":"a"}"#, 0),
        ] {
            assert_eq!(of(claims).map(|token| token.expires), Ok(expires), "{claims}");
        }
        for claims in [r#"{"exp":true}"#, r#"{"exp":"soon"}"#, "[", "{", ""] {
            assert!(of(claims).is_err(), "{claims}");
        }
    }

    #[test]
    fn what_is_no_jwt_is_refused_without_being_shown() {
        for token in ["s3cret", "a.s3cret", "a.s3cret.b", "s3cret.e30.c.d", "s3cret\n.e30.c", ""] {
            let error = IdToken::parse(token).err().unwrap();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn a_token_is_fresh_until_ten_seconds_before_its_expiry() {
        let now = Timestamp::now().as_second();
        for (left, is_fresh) in [(-1, false), (9, false), (60, true)] {
            assert_eq!(of(&format!(r#"{{"exp":{}}}"#, now + left)).unwrap().is_fresh(), is_fresh, "{left}");
        }
    }
}
