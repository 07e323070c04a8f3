//! The values of the header `Authorization`.

use http::HeaderValue;

use super::pem;

pub(super) fn bearer(token: &str) -> Result<HeaderValue, String> {
    secret(format!("Bearer {token}"))
}

pub(crate) fn basic(name: &str, password: &str) -> Result<HeaderValue, String> {
    secret(format!("Basic {}", pem::encode(format!("{name}:{password}").as_bytes())))
}

fn secret(text: String) -> Result<HeaderValue, String> {
    let mut value =
        HeaderValue::try_from(text).map_err(|_| "the token or password has bytes that cannot be sent".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}
