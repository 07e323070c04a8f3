//! `informerd explain`: predicts how a request would be answered. The daemon computes the answer on its traffic
//! runtime, where its connections are, and not on the admin thread. The command prints the answer.

use http::header::{ACCEPT, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use informerd_status::Explanation;
use tokio::sync::{mpsc, oneshot};

use super::admin_side::AdminSide;
use crate::admin::Explaining;
use crate::args::Explained;
use crate::auth::Mode;
use crate::http::{Parsed, read};
use crate::lifecycle;
use crate::meta::RequestInfo;
use crate::reads::{Fate, Forecast, ForwardReason, Reads};

/// The most questions that wait. Further ones are not answered.
const WAITING: usize = 16;

type Question = (Box<Parts>, oneshot::Sender<Explanation>);

/// The handle for asking questions.
#[derive(Clone, Debug)]
pub(super) struct Explainer {
    questions: mpsc::Sender<Question>,
}

// === impl Explainer ===

impl Explainer {
    /// The listeners have these modes. If some are trusted, the prediction is for them.
    pub(super) fn start(reads: Reads, modes: Vec<Mode>) -> Self {
        let (explainer, mut asked) = Self::channel();
        lifecycle::spawn("explain", async move {
            while let Some((request, answer)) = asked.recv().await {
                // The caller may be gone.
                let _ = answer.send(explain(&reads, &request, &modes).await);
            }
        });
        explainer
    }

    fn channel() -> (Self, mpsc::Receiver<Question>) {
        let (questions, asked) = mpsc::channel(WAITING);
        (Self { questions }, asked)
    }

    pub(super) fn ask(&self, request: Parts) -> Explaining {
        let (answer, answered) = oneshot::channel();
        let sent = self.questions.try_send((Box::new(request), answer));
        Box::pin(async move {
            sent.ok()?;
            answered.await.ok()
        })
    }
}

async fn explain(reads: &Reads, request: &Parts, modes: &[Mode]) -> Explanation {
    let uri = &request.uri;
    let info = RequestInfo::parse(request.method.as_str(), uri.path(), uri.query().unwrap_or_default());
    let forecast = async |mode| match read::parse(request, &info, mode) {
        Parsed::Read(read, _) if mode == Mode::Trust => Some(reads.for_trusted().explain(&read, info.verb).await),
        Parsed::Read(read, _) => Some(reads.explain(&read, info.verb).await),
        Parsed::Forward(reason) => Some(Forecast { fate: Fate::Forwarded(reason), informer: None }),
        Parsed::Other => None,
    };
    let mode = if modes.contains(&Mode::Trust) { Mode::Trust } else { Mode::Delegated };
    let Some(Forecast { fate, informer }) = forecast(mode).await else {
        return Explanation {
            plan: "forwarded".to_owned(),
            cause: "it is not a read of objects, and everything else goes to the apiserver".to_owned(),
            ..Explanation::default()
        };
    };
    let mut authenticating = String::new();
    if mode == Mode::Trust
        && modes.contains(&Mode::Delegated)
        && let Some(Forecast { fate: other @ Fate::Forwarded(ForwardReason::Aggregated), .. }) =
            forecast(Mode::Delegated).await
    {
        authenticating = format!("{}: {}: {}", other.plan(), other.reason(), other.cause());
    }
    Explanation {
        plan: fate.plan().to_owned(),
        reason: fate.reason().to_owned(),
        cause: fate.cause().to_owned(),
        change: fate.change().to_owned(),
        informer: informer.unwrap_or_default(),
        authenticating,
    }
}

/// Asks a daemon.
///
/// # Errors
/// It does not answer, or the answer is not that of an informerd.
pub(super) async fn ask(admin: AdminSide, asked: &Explained) -> Result<Explanation, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in [(ACCEPT, &asked.accept), (USER_AGENT, &asked.user_agent)] {
        if let Some(value) = value {
            let wrong = |_invalid| format!("{value:?} is no value of the header {name}");
            headers.insert(&name, HeaderValue::from_str(value).map_err(wrong)?);
        }
    }
    admin.get(&format!("/explain{}", asked.target), headers).await
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn few_questions_wait() {
        let (explainer, _questions) = Explainer::channel();
        let question = || http::Request::get("/api/v1/pods").body(()).unwrap().into_parts().0;
        let waits = |_: &usize| explainer.ask(question()).now_or_never().is_none();
        assert_eq!((0..WAITING + 2).filter(waits).count(), WAITING);
    }
}
