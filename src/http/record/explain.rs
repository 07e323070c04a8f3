//! The header that explains one answer in the terms that `informerd_reads_total` uses for all answers. The apiserver
//! has no such header, so it is sent only if a setting enables it.

use std::fmt::Write as _;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::reads::{ForwardReason, Served};

pub(super) const PLAN: HeaderName = HeaderName::from_static("x-informerd-plan");

/// How a request was answered.
#[derive(Clone, Copy, Debug)]
pub(in crate::http) enum Plan {
    /// From a cache.
    Served(Served),
    /// From a cache, because the apiserver does not answer.
    Old(Served),
    /// By the apiserver. The reason is `None` for requests that no cache can answer: writes, subresources, discovery.
    Forwarded(Option<ForwardReason>),
    Refused(&'static str),
}

/// It had to be forwarded, and that failed before the apiserver answered.
pub(in crate::http) const NOT_FORWARDED: Plan = Plan::Refused("not_forwarded");

// === impl Plan ===

impl Plan {
    /// Plan and reason as the labels of `informerd_reads_total` name them. The reason is empty if there is none.
    pub(in crate::http) fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Served(served) => (served.waited.plan(), served.waited.reason()),
            Self::Old(_) => ("old", "away"),
            Self::Forwarded(reason) => ("forward", reason.map_or("", ForwardReason::as_str)),
            Self::Refused(reason) => ("refuse", reason),
        }
    }

    /// Writes the header, for example `waited; reason=not_fresh; revision=1234; age=0.050`. The age, in seconds, is the
    /// time since the apiserver last reported on this resource.
    pub(in crate::http) fn write(self, headers: &mut HeaderMap) {
        let (plan, reason) = self.words();
        let mut text = String::with_capacity(64);
        text.push_str(in_header(plan));
        // Writing to a String cannot fail.
        if !reason.is_empty() {
            let _ = write!(text, "; reason={reason}");
        }
        if let Self::Served(served) | Self::Old(served) = self {
            let _ = write!(text, "; revision={}", served.rv);
            if let Some(age) = served.age() {
                let _ = write!(text, "; age={:.3}", age.as_secs_f64());
            }
        }
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(PLAN, value);
        }
    }
}

/// What the header, and the access log, call a plan of [`Plan::words`].
pub(in crate::http) fn in_header(plan: &str) -> &'static str {
    match plan {
        "serve" | "old" => "served",
        "wait" => "waited",
        "forward" => "forwarded",
        _ => "refused",
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::meta::ResourceVersion;
    use crate::reads::Waited;

    #[tokio::test(start_paused = true)]
    async fn words() {
        let heard = Some(Instant::now());
        tokio::time::advance(std::time::Duration::from_millis(1250)).await;
        let served = |waited, heard| Plan::Served(Served { waited, rv: ResourceVersion(7), heard });
        for (plan, expected) in [
            (served(Waited::Nothing, heard), "served; revision=7; age=1.250"),
            (served(Waited::Nothing, None), "served; revision=7"),
            (
                Plan::Old(Served { waited: Waited::Nothing, rv: ResourceVersion(7), heard }),
                "served; reason=away; revision=7; age=1.250",
            ),
            (served(Waited::Sync, heard), "waited; reason=not_synced; revision=7; age=1.250"),
            (Plan::Forwarded(Some(ForwardReason::Consistent)), "forwarded; reason=consistent"),
            (Plan::Forwarded(None), "forwarded"),
            (Plan::Refused("not_found"), "refused; reason=not_found"),
        ] {
            let mut headers = HeaderMap::new();
            plan.write(&mut headers);
            assert_eq!(headers[PLAN], expected);
        }
    }
}
