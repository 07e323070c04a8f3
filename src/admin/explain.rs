//! `/explain/PATH`: predicts how a request for PATH with the headers of this request would be answered.

use std::pin::Pin;

use http::Uri;
use http::request::Parts;
use http::uri::PathAndQuery;
use informerd_status::Explanation;

/// `None` if there is no answer now.
pub(crate) type Explaining = Pin<Box<dyn Future<Output = Option<Explanation>> + Send>>;

pub(super) const PREFIX: &str = "/explain";

/// The request in question, as its client would send it; `None` if the target is not a path.
pub(super) fn asked(mut head: Parts) -> Option<Parts> {
    let target = head.uri.path_and_query()?.as_str().strip_prefix(PREFIX)?;
    let target: PathAndQuery = target.starts_with('/').then(|| target.parse().ok())??;
    head.uri = Uri::from(target);
    Some(head)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn the_path_behind_the_prefix_is_asked_about() {
        let asked = |target: &str| {
            let head = Request::get(target).header("accept", "a/b").body(()).unwrap().into_parts().0;
            asked(head).map(|head| (head.uri.to_string(), head.headers["accept"].clone()))
        };
        assert_eq!(
            asked("/explain/api/v1/pods?limit=5&x=%2F"),
            Some(("/api/v1/pods?limit=5&x=%2F".into(), "a/b".parse().unwrap()))
        );
        assert_eq!(asked("/explain"), None);
        assert_eq!(asked("/explain?a"), None);
        assert_eq!(asked("/explained"), None);
    }
}
