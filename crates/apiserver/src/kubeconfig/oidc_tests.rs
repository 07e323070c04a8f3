use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::join_all;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::config::AuthProviderConfig;

use super::config::{CA_DATA, CA_FILE, CLIENT_ID, CLIENT_SECRET, ISSUER};
use super::*;
use crate::kubeconfig::{Credentials, pem};
use crate::testing::{Body, FakeServer, answer, padded};

const SECRET: &str = "s3cret &c";
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// A request to the provider.
#[derive(Clone, Debug)]
struct Asked {
    /// The path, and for a token the form after a `?`.
    what: String,
    authorization: Option<String>,
    /// `http://host:port` of the provider.
    place: String,
    /// How many requests for a token were before.
    before: usize,
}

/// A provider that answers requests for tokens as a closure says.
struct Idp {
    server: FakeServer,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Asked {
    fn is_discovery(&self) -> bool {
        self.what == DISCOVERY
    }

    fn discovered(&self) -> Response<Body> {
        answer(200, format!(r#"{{"issuer":"i","token_endpoint":"{}/token"}}"#, self.place))
    }
}

impl Idp {
    async fn start(is_tls: bool, script: impl Fn(&Asked) -> Option<Response<Body>> + Send + Sync + 'static) -> Self {
        let asked = Arc::new(Mutex::new(Vec::<Asked>::new()));
        let (log, script) = (Arc::clone(&asked), Arc::new(script));
        let handler = move |request: Request<hyper::body::Incoming>, _| {
            let (log, script) = (Arc::clone(&log), Arc::clone(&script));
            async move {
                let (head, body) = request.into_parts();
                let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
                let text = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
                let what = if body.is_empty() { head.uri.path().to_owned() } else { format!("{}?{body}", head.uri) };
                let place = format!("{}://{}", if is_tls { "https" } else { "http" }, text("host").unwrap());
                let before = log.lock().iter().filter(|asked| !asked.is_discovery()).count();
                let asked = Asked { what, authorization: text("authorization"), place, before };
                log.lock().push(asked.clone());
                let Some(answer) = script(&asked) else { return std::future::pending().await };
                answer
            }
        };
        let server = if is_tls {
            FakeServer::tls(&["h2", "http/1.1"], 100, handler).await
        } else {
            FakeServer::plain(handler).await
        };
        Self { server, asked }
    }

    /// Discovery works.
    async fn of_tokens(script: impl Fn(&Asked) -> Response<Body> + Send + Sync + 'static) -> Self {
        Self::start(false, move |asked| Some(if asked.is_discovery() { asked.discovered() } else { script(asked) }))
            .await
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().iter().map(|asked| asked.what.clone()).collect()
    }

    fn user(&self, more: &[(&str, &str)]) -> HashMap<String, String> {
        user(&self.server.url(), more)
    }
}

fn user(issuer: &str, more: &[(&str, &str)]) -> HashMap<String, String> {
    let fields = [(ISSUER, issuer), (CLIENT_ID, "informerd/1"), (CLIENT_SECRET, SECRET)];
    fields.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn credentials(config: HashMap<String, String>) -> Result<Credentials, String> {
    let mut of = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
    of.auth_info.auth_provider = Some(AuthProviderConfig { name: "oidc".into(), config, ..Default::default() });
    Credentials::new(&of).map_err(|error| error.to_string())
}

async fn header(credentials: &Credentials) -> Result<HeaderValue, String> {
    let mut headers = HeaderMap::new();
    credentials.apply(&mut headers).await.map_err(|error| error.to_string())?;
    Ok(headers[AUTHORIZATION].clone())
}

/// A token that expires in so many seconds.
fn jwt(name: &str, left: i64) -> String {
    let claims = format!(r#"{{"sub":"{name}","exp":{}}}"#, Timestamp::now().as_second() + left);
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
}

fn granted(id_token: &str, more: &str) -> Response<Body> {
    answer(200, format!(r#"{{"access_token":"a","token_type":"bearer","id_token":"{id_token}"{more}}}"#))
}

/// Lets the pause between two renewals pass.
async fn pause() {
    tokio::time::pause();
    tokio::time::advance(PAUSE).await;
    tokio::time::resume();
}

#[tokio::test]
async fn many_requests_renew_a_token_once() {
    for first in [jwt("first", -3600), jwt("first", 8), String::new(), "e30.e30.c2ln".to_owned()] {
        let renewed = jwt("renewed", 3600);
        let given = renewed.clone();
        let idp = Idp::of_tokens(move |_| granted(&given, "")).await;
        let credentials = credentials(idp.user(&[(ID_TOKEN, &first), (REFRESH_TOKEN, "r/0")])).unwrap();
        for header in join_all((0..100).map(|_| header(&credentials))).await {
            let header = header.unwrap();
            assert!(header == format!("Bearer {renewed}") && header.is_sensitive());
        }
        pause().await;
        header(&credentials).await.unwrap();
        assert_eq!(idp.asked(), [DISCOVERY, "/token?grant_type=refresh_token&refresh_token=r%2F0"], "{first:?}");
        let basic = pem::encode(b"informerd%2F1:s3cret+%26c");
        assert_eq!(idp.asked.lock()[1].authorization, Some(format!("Basic {basic}")));
    }
}

#[tokio::test]
async fn a_new_refresh_token_replaces_the_old_one_also_when_the_configuration_is_read_again() {
    // As a provider that takes each refresh token once, with tokens that expire at once.
    let idp = Idp::of_tokens(|asked| {
        if asked.what.ends_with(&format!("refresh_token=r{}", asked.before)) {
            let next = asked.before + 1;
            granted(&jwt(&next.to_string(), 5), &format!(r#","refresh_token":"r{next}""#))
        } else {
            answer(400, r#"{"error":"invalid_grant"}"#)
        }
    });
    let idp = idp.await;
    let config = idp.user(&[(REFRESH_TOKEN, "r0")]);
    let first = credentials(config.clone()).unwrap();
    let issued = header(&first).await.unwrap();
    assert_eq!(header(&first).await.unwrap(), issued, "not again at once");
    assert_eq!(idp.asked().len(), 2);
    pause().await;
    header(&first).await.unwrap();
    pause().await;
    header(&credentials(config).unwrap()).await.unwrap();
    assert_eq!(idp.asked().last().unwrap(), "/token?grant_type=refresh_token&refresh_token=r2");
    let other = credentials(idp.user(&[(REFRESH_TOKEN, "r3"), (ID_TOKEN, "")])).unwrap();
    header(&other).await.unwrap();
    assert_eq!(idp.asked().len(), 8);
}

#[tokio::test]
async fn a_failure_is_told_without_secrets_and_not_repeated_at_once_and_ends() {
    type Failing = fn(&Asked) -> Option<Response<Body>>;
    let failures: [(&str, Failing); 11] = [
        ("no id_token", |_| Some(answer(200, r#"{"access_token":"a","refresh_token":"r0"}"#))),
        ("no access_token", |_| Some(answer(200, r#"{"id_token":"a.b.c"}"#))),
        ("no JWT", |_| Some(granted("s3cret", ""))),
        ("\"invalid_grant\" \"no … and …\"", |_| {
            Some(answer(400, format!(r#"{{"error":"invalid_grant","error_description":"no r0-r0 and {SECRET}"}}"#)))
        }),
        ("\"gone\"", |_| Some(answer(200, r#"{"error":"gone"}"#))),
        ("500 Internal Server Error", |_| Some(answer(500, "<html>"))),
        ("neither a JSON object nor a form", |_| Some(answer(200, "<html>"))),
        ("limit", |_| Some(answer(200, vec![b' '; (1 << 20) + 1]))),
        ("discovery: the provider answers 404 Not Found: \"gone\"", |asked| {
            asked.is_discovery().then(|| answer(404, "gone"))
        }),
        ("no token_endpoint", |asked| asked.is_discovery().then(|| answer(200, r#"{"token_endpoint":""}"#))),
        ("\"h\" is no URL", |asked| {
            asked.is_discovery().then(|| answer(200, r#"{"token_endpoint":"ftp://u:s3cret@h"}"#))
        }),
    ];
    for (number, (words, failing)) in failures.into_iter().enumerate() {
        let is_failing = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let fails = Arc::clone(&is_failing);
        let idp = Idp::start(false, move |asked| {
            let of_discovery = number >= 8;
            if fails.load(std::sync::atomic::Ordering::Relaxed) && asked.is_discovery() == of_discovery {
                failing(asked)
            } else if asked.is_discovery() {
                Some(asked.discovered())
            } else {
                // As large as it may be.
                let text = format!(r#"{{"access_token":"a","id_token":"{}"}}"#, jwt("a", 3600));
                Some(answer(200, padded(&text, 1 << 20)))
            }
        });
        let idp = idp.await;
        let expired = jwt("expired", 0);
        let credentials = credentials(idp.user(&[(ID_TOKEN, &expired), (REFRESH_TOKEN, "r0-r0")])).unwrap();
        let errors = join_all((0..100).map(|_| header(&credentials))).await;
        let asked = idp.asked().len();
        assert!(asked <= 3, "{words}: {:?}", idp.asked());
        for error in errors {
            let error = error.unwrap_err();
            assert!(error.contains(words) && error.starts_with("auth-provider oidc: "), "{words}: {error}");
            assert!(!error.contains("s3cret") && !error.contains("r0-r0") && error.lines().count() == 1, "{error}");
        }
        is_failing.store(false, std::sync::atomic::Ordering::Relaxed);
        header(&credentials).await.unwrap_err();
        assert_eq!(idp.asked().len(), asked, "{words}: not again at once");
        pause().await;
        header(&credentials).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_hangs_is_given_up() {
    for of_discovery in [true, false] {
        let idp = Idp::start(false, move |asked| (asked.is_discovery() && !of_discovery).then(|| asked.discovered()));
        let idp = idp.await;
        let credentials = credentials(idp.user(&[(REFRESH_TOKEN, "r0")])).unwrap();
        let asked = Instant::now();
        for error in join_all((0..100).map(|_| header(&credentials))).await {
            let error = error.unwrap_err();
            assert!(error.contains("30s"), "{of_discovery}: {error}");
        }
        assert!(asked.elapsed() < LIMIT * 2);
    }
    let nobody = credentials(user("http://127.0.0.1:1", &[(REFRESH_TOKEN, "r0")])).unwrap();
    assert!(header(&nobody).await.unwrap_err().contains("127.0.0.1:1"));
}

#[tokio::test]
async fn a_renewal_goes_on_when_whoever_asked_goes_away() {
    let (asked, mut was_asked) = tokio::sync::watch::channel(0);
    let idp = Idp::of_tokens(move |_| {
        asked.send_modify(|asked| *asked += 1);
        granted(&jwt("a", 3600), r#","refresh_token":"r1""#)
    });
    let idp = idp.await;
    let credentials = credentials(idp.user(&[(REFRESH_TOKEN, "r0")])).unwrap();
    tokio::select! {
        biased;
        _ = was_asked.wait_for(|asked| *asked > 0) => {}
        _ = header(&credentials) => panic!("the answer is on its way only"),
    }
    header(&credentials).await.unwrap();
    assert_eq!(idp.asked().len(), 2);
}

#[tokio::test]
async fn redirects_are_followed_as_in_go() {
    let to = |code: u16, url: &str| {
        let mut answer = answer(code, "");
        answer.headers_mut().insert("location", url.parse().unwrap());
        answer
    };
    let elsewhere = Idp::of_tokens(|_| granted(&jwt("elsewhere", 3600), "")).await;
    // Another name of this machine.
    let other = elsewhere.server.url().replace("127.0.0.1", "localhost");
    let target = other.clone();
    let idp = Idp::start(false, move |asked| {
        Some(match asked.what.as_str() {
            DISCOVERY => to(302, "/moved?x=http://y/z"),
            "/moved" => to(301, "/again"),
            "/again" => asked.discovered(),
            _ if asked.what.starts_with("/token?") => to(307, "there"),
            _ if asked.what.starts_with("/there?") => to(308, &format!("{target}/token")),
            _ => answer(404, ""),
        })
    });
    let idp = idp.await;
    header(&credentials(idp.user(&[(REFRESH_TOKEN, "r0")])).unwrap()).await.unwrap();
    assert!(idp.asked.lock().iter().filter(|asked| asked.what.contains("r0")).all(|it| it.authorization.is_some()));
    assert_eq!(elsewhere.asked(), ["/token?grant_type=refresh_token&refresh_token=r0"]);
    assert_eq!(elsewhere.asked.lock()[0].authorization, None, "of another server");
    let circle = Idp::start(false, move |_| Some(to(302, "/"))).await;
    let error = header(&credentials(circle.user(&[(REFRESH_TOKEN, "r0")])).unwrap()).await.unwrap_err();
    assert!(error.contains("redirects more than 10 times"), "{error}");
    assert_eq!(circle.asked().len(), 10);
}

#[tokio::test]
async fn what_the_configuration_lacks_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display().to_string();
    for (more, words) in [
        ((ISSUER, ""), ISSUER),
        ((CLIENT_ID, ""), CLIENT_ID),
        ((CA_FILE, "/no/such"), "/no/such"),
        ((CA_FILE, path.as_str()), "no certificate"),
        ((CA_DATA, "!"), CA_DATA),
        ((CA_DATA, "eA=="), "no certificate"),
        ((ID_TOKEN, "s3cret"), "no JWT"),
    ] {
        let error = credentials(user("http://127.0.0.1:1", &[more])).err().unwrap();
        assert!(error.contains(words) && !error.contains("s3cret"), "{words}: {error}");
    }
    let expired = credentials(user("http://127.0.0.1:1", &[(ID_TOKEN, &jwt("a", 0))])).unwrap();
    assert!(header(&expired).await.unwrap_err().contains("no refresh-token"));
}

#[test]
fn the_configurations_that_are_remembered_have_a_bound() {
    let mut known = Known(Vec::new());
    let mut of = |number: usize| {
        let config = user(&format!("http://h/{number}"), &[]);
        known.provider(&config, Trust::of(&config).unwrap()).unwrap()
    };
    let first = of(0);
    let second = of(1);
    for number in 2..KEPT {
        of(number);
    }
    assert!(Arc::ptr_eq(&first, &of(0)));
    of(KEPT);
    assert!(Arc::ptr_eq(&first, &of(0)), "read lately");
    assert!(!Arc::ptr_eq(&second, &of(1)), "forgotten");
    assert_eq!(known.0.len(), KEPT);
}
