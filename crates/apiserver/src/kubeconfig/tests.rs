use secrecy::ExposeSecret;

use super::*;

fn read(text: &str, wanted: &Wanted, variable: &dyn Fn(&str) -> Option<String>) -> Result<Kubeconfig, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    load_with(&[file.path().to_owned()], wanted, variable).map_err(|error| error.to_string())
}

fn of(cluster: &str, user: &str) -> Result<Kubeconfig, String> {
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {cluster}}}]\nusers: [{{name: u, user: {user}}}]\n"
    );
    read(&text, &Wanted::default(), &|_| None)
}

/// The rest is compared with kubectl in `tests/real/kubeconfigs.rs`.
#[test]
fn nothing_secret_goes_to_a_server_without_tls() {
    let user = "{token: t, username: '', client-certificate-data: eA==, client-key-data: eA==, as: x}";
    for server in ["http://h:1", "h:1", "h", "http://h/p"] {
        let config = of(&format!("{{server: '{server}', certificate-authority-data: eA==}}"), user).unwrap().config;
        let user = config.auth_info;
        assert!(user.token.is_none() && user.client_certificate_data.is_none() && config.root_cert.is_none());
        assert_eq!(user.impersonate.as_deref(), Some("x"), "{server}");
    }
}

#[test]
fn a_password_in_the_url_of_the_server_is_a_credential_and_not_shown() {
    let config = |server: &str, user: &str| of(&format!("{{server: '{server}'}}"), user).map(|it| it.config);
    let basic = |server: &str, user: &str| {
        let found = config(server, user).unwrap();
        assert!(!found.cluster_url.to_string().contains('@'), "{}", found.cluster_url);
        let password = found.auth_info.password.as_ref().map(|it| it.expose_secret().to_owned());
        (found.cluster_url.to_string(), found.auth_info.username, password)
    };
    let (admin, s3cret) = (Some("admin".to_owned()), Some("s3cret".to_owned()));
    let url = |text: &str| text.to_owned();
    assert_eq!(basic("https://admin:s3cret@h:1/p", "{}"), (url("https://h:1/p"), admin.clone(), s3cret.clone()));
    for user in ["{}", "{token: t}", "{tokenFile: /t}", "{username: u, password: p}"] {
        assert_eq!(
            basic("https://admin:s3%63ret@h", user),
            (url("https://h/"), admin.clone(), s3cret.clone()),
            "{user}"
        );
    }
    assert!(config("https://admin:s3cret@h", "{token: t}").unwrap().auth_info.token.is_none());
    assert_eq!(basic("https://admin@h", "{}"), (url("https://h/"), admin, Some(String::new())));
    assert_eq!(basic("http://admin:s3cret@h", "{}"), (url("http://h/"), None, None));
    assert_eq!(basic("admin:s3cret@h", "{}").1, None);
    for server in ["ftp://admin:s3cret@h", "https://admin:s3cret@h h", "https://admin:s3cret@", "https://s3cret:%ff@h"]
    {
        let error = config(server, "{}").unwrap_err();
        assert!(error.contains("server") && !error.contains("s3cret"), "{error}");
    }
}

#[test]
fn mistakes_are_named_together_in_one_line() {
    let cluster = "{certificate-authority: /no/ca, certificate-authority-data: eA==}";
    let user = "{token: s3cret, username: u, client-certificate: /no/c, as-uid: '1', exec: {apiVersion: x}}";
    let message = of(cluster, user).unwrap_err();
    for words in
        ["server", "/no/ca", "both", "username", "/no/c", "client-key", "as-uid", "command", "apiVersion", "Mode"]
    {
        assert!(message.contains(words), "{words}: {message}");
    }
    assert!(message.lines().count() == 1 && !message.contains("s3cret"), "{message}");
}

#[test]
fn what_is_wanted_by_name_must_exist() {
    let text = "clusters: [{name: k, cluster: {server: 'http://k'}}, {name: l, cluster: {server: 'http://l'}}]\n\
                contexts: [{name: c, context: {cluster: k, user: none, namespace: ns}}]\n";
    let load = |context: Option<&str>, cluster: Option<&str>, user: Option<&str>| {
        let [context, cluster, user] = [context, cluster, user].map(|name| name.map(str::to_owned));
        read(text, &Wanted { context, cluster, user }, &|_| None)
    };
    assert!(load(None, None, None).unwrap_err().contains("current-context"));
    let found = load(Some("c"), None, None).unwrap();
    assert_eq!((found.config.cluster_url.host(), found.config.default_namespace.as_str()), (Some("k"), "ns"));
    assert_eq!(found.context, "c");
    assert_eq!(load(Some("c"), Some("l"), None).unwrap().config.cluster_url.host(), Some("l"));
    for wrong in [load(Some("d"), None, None), load(Some("c"), Some("m"), None), load(Some("c"), None, Some("v"))] {
        assert!(wrong.unwrap_err().contains("does not exist"));
    }
}

#[test]
fn a_proxy_that_is_set_comes_before_the_environment() {
    let proxy = |field: &str| {
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: k}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://h'{field}}}}}]\n"
        );
        let variable = |name: &str| (name == "HTTPS_PROXY").then(|| "http://environment:1".to_owned());
        let loaded = read(&text, &Wanted::default(), &variable);
        loaded.map(|it| it.config.proxy_url.unwrap().to_string())
    };
    assert_eq!(proxy("").unwrap(), "http://environment:1/");
    assert_eq!(proxy(", proxy-url: 'socks5://file:1'").unwrap(), "socks5://file:1/");
    assert!(proxy(", proxy-url: 'ftp://u:s3cret@file'").unwrap_err().contains("ftp"));
}
