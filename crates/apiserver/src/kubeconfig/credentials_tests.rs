use std::time::Duration;

use kube::config::{ExecConfig, ExecInteractiveMode};

use super::*;

fn config(set: impl FnOnce(&mut AuthInfo)) -> kube::Config {
    let mut config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
    set(&mut config.auth_info);
    config
}

async fn headers(credentials: &Credentials) -> HeaderMap {
    let mut headers = HeaderMap::new();
    credentials.apply(&mut headers).await.unwrap();
    headers
}

#[tokio::test(start_paused = true)]
async fn a_token_of_a_file_is_read_again() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().display().to_string();
    let only_file = config(|user| user.token_file = Some(path.clone()));
    assert!(Credentials::new(&only_file).err().unwrap().to_string().contains("empty"));
    let both = config(|user| (user.token_file, user.token) = (Some(path.clone()), Some("t0".to_owned().into())));
    let with_token = Credentials::new(&both).unwrap();
    assert_eq!(headers(&with_token).await[AUTHORIZATION], "Bearer t0");
    std::fs::write(&path, "t1\n").unwrap();
    let credentials = Credentials::new(&only_file).unwrap();
    assert_eq!(headers(&credentials).await[AUTHORIZATION], "Bearer t1");
    assert!(headers(&credentials).await[AUTHORIZATION].is_sensitive());
    std::fs::write(&path, "t2").unwrap();
    assert_eq!(headers(&credentials).await[AUTHORIZATION], "Bearer t1", "for a while");
    tokio::time::advance(FRESH + Duration::from_secs(1)).await;
    for credentials in [&credentials, &with_token] {
        assert_eq!(headers(credentials).await[AUTHORIZATION], "Bearer t2");
    }
    std::fs::write(&path, "\n").unwrap();
    tokio::time::advance(FRESH + Duration::from_secs(1)).await;
    assert_eq!(headers(&credentials).await[AUTHORIZATION], "Bearer t2", "kept");
}

#[tokio::test]
async fn whoever_impersonates_already_keeps_doing_that() {
    let credentials = Credentials::new(&config(|user| {
        user.impersonate = Some("a".into());
        user.impersonate_groups = Some(vec!["g".into(), "h".into()]);
        user.impersonate_user_extra = Some([("Ex/t%ra".to_owned(), vec!["x".to_owned()])].into());
    }));
    let credentials = credentials.unwrap();
    let ours = headers(&credentials).await;
    assert_eq!(
        (&ours["impersonate-user"], &ours["impersonate-extra-ex%2ft%25ra"]),
        (&"a".parse().unwrap(), &"x".parse().unwrap())
    );
    assert_eq!(ours.get_all(IMPERSONATE_GROUP).iter().count(), 2);
    let mut theirs = HeaderMap::from_iter([(IMPERSONATE_USER, HeaderValue::from_static("b"))]);
    credentials.apply(&mut theirs).await.unwrap();
    assert_eq!((theirs.len(), &theirs[IMPERSONATE_USER]), (1, &HeaderValue::from_static("b")));
}

/// A plugin that runs this script.
fn plugin(script: String) -> Result<Credentials, KubeconfigError> {
    Credentials::new(&config(|user| {
        user.exec = Some(ExecConfig {
            api_version: Some("client.authentication.k8s.io/v1".into()),
            command: Some("sh".into()),
            args: Some(vec!["-c".into(), script]),
            interactive_mode: Some(ExecInteractiveMode::Never),
            ..ExecConfig::default()
        });
    }))
}

#[test]
fn what_a_plugin_prints_has_a_bound() {
    for (bytes, fits) in [(1 << 20, true), ((1 << 20) + 1, false)] {
        let (start, end) = (r#"{"apiVersion":"client.authentication.k8s.io/v1","status":{"token":""#, r#""}}"#);
        let letters = bytes - start.len() - end.len();
        let script = format!("printf %s '{start}'; head -c {letters} /dev/zero | tr '\\0' x; printf %s '{end}'");
        assert_eq!(plugin(script).is_ok(), fits, "{bytes}");
    }
}

#[tokio::test]
async fn a_plugin_runs_again_when_its_token_has_expired() {
    let directory = tempfile::tempdir().unwrap();
    let (runs, expires) = (directory.path().join("runs"), directory.path().join("expires"));
    std::fs::write(&expires, "2020-01-01T00:00:00Z").unwrap();
    let script = format!(
        "echo >> {runs}; printf '%s' '{{\"apiVersion\":\"client.authentication.k8s.io/v1\",\"kind\":\"ExecCredential\",\
         \"status\":{{\"token\":\"t'$(wc -l < {runs})'\",\"expirationTimestamp\":\"'$(cat {expires})'\"}}}}'",
        runs = runs.display(),
        expires = expires.display()
    );
    let credentials = plugin(script).unwrap();
    assert_eq!(headers(&credentials).await[AUTHORIZATION], "Bearer t2");
    std::fs::write(&expires, "2999-01-01T00:00:00Z").unwrap();
    assert_eq!(headers(&credentials).await[AUTHORIZATION], "Bearer t3");
    assert_eq!(headers(&credentials).await[AUTHORIZATION], "Bearer t3", "it has not expired");
}

#[test]
fn secrets_are_in_no_message() {
    for wrong in [
        config(|user| user.token = Some("s3cret\n".to_owned().into())),
        config(|user| {
            user.client_certificate_data = Some(pem::encode(b"s3cret"));
            user.client_key_data = Some(pem::encode(b"s3cret").into());
        }),
    ] {
        let message = Credentials::new(&wrong).err().unwrap().to_string();
        assert!(!message.contains("s3cret") && message.lines().count() == 1, "{message}");
    }
}
