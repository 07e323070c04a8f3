//! The kubeconfigs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::provider::{USER, unsigned};
use super::{Case, World, base64, data};
pub(super) use crate::cluster::context as file;

/// Base64 in lines, as `base64` writes it.
fn broken(text: &str) -> String {
    let lines: Vec<_> = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    format!("\"{}\\n\"", lines.join("\\r\\n"))
}

/// A plugin that prints an `ExecCredential` with this status.
fn plugin(version: &str, mode: &str, status: &str, more: &str) -> String {
    let print = format!(
        r#"{{"apiVersion":"client.authentication.k8s.io/{version}","kind":"ExecCredential","status":{status}}}"#
    );
    let print = print.replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/{version}, command: sh, \
         args: [\"-c\", \"printf %s \\\"$0\\\"\", \"{print}\"]{mode}{more}}}}}"
    )
}

fn in_json(name: &str) -> String {
    std::fs::read_to_string(data(name)).expect("a file of the data").replace('\n', "\\n")
}

impl World {
    pub(super) fn ca_field(&self) -> String {
        format!("certificate-authority-data: {}", self.ca)
    }

    fn cluster(&self) -> String {
        format!("{{server: '{}', {}}}", self.server, self.ca_field())
    }

    fn of_server(&self, name: &str, ca: &str) -> String {
        format!("{{server: '{}', tls-server-name: {name}, certificate-authority-data: {}}}", self.server, base64(ca))
    }
}

pub(super) fn all(world: &World) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: &'static str, files: &[String], user: Option<&'static str>| {
        cases.push(Case { name, files: files.to_vec(), user });
    };
    let cluster = world.cluster();
    let mut of_user = |name: &'static str, user: &str, is: Option<&'static str>| add(name, &[file(&cluster, user)], is);
    certificates(&mut of_user);
    tokens(world, &mut of_user);
    plugins(world, &mut of_user);
    oidc(world, &mut of_user);
    let admin = "{token: admin-token}";
    let mut of_cluster =
        |name: &'static str, cluster: &str, is: Option<&'static str>| add(name, &[file(cluster, admin)], is);
    clusters(world, &mut of_cluster);
    several(world, &mut add);
    cases
}

fn certificates(add: &mut dyn FnMut(&'static str, &str, Option<&'static str>)) {
    let pair = |certificate: &str, key: &str| {
        format!("{{client-certificate-data: {}, client-key-data: {}}}", base64(certificate), base64(key))
    };
    add("a certificate of version 1", &pair("v1.crt", "v1.key"), Some("admin"));
    add("RSA in PKCS #1", &pair("rsa.crt", "rsa.key"), Some("rsa"));
    add("RSA in PKCS #8", &pair("rsa.crt", "rsa-pkcs8.key"), Some("rsa"));
    add("EC in SEC 1, with parameters", &pair("ec.crt", "ec.key"), Some("ec"));
    add("EC in PKCS #8", &pair("ec.crt", "ec-pkcs8.key"), Some("ec"));
    add("EC of P-521", &pair("p521.crt", "p521.key"), Some("p521"));
    add("Ed25519", &pair("ed25519.crt", "ed25519.key"), Some("ed25519"));
    add("RSA of 1,024 bits", &pair("rsa1024.crt", "rsa1024.key"), Some("rsa1024"));
    add("RSA of 1,536 bits in PKCS #8", &pair("rsa1536.crt", "rsa1536.key"), Some("rsa1536"));
    let headed = std::fs::read_to_string(data("ec.crt")).expect("a file").replacen("E-----\n", "E-----\nA: b\n\n", 1);
    let headed = pair("ec.crt", "ec.key").replace(&base64("ec.crt"), &STANDARD.encode(headed));
    add("a certificate with a header", &headed, Some("ec"));
    add("an encrypted key", &pair("rsa.crt", "rsa-encrypted.key"), None);
    add("an encrypted key of the old kind", &pair("rsa.crt", "rsa-encrypted-old.key"), None);
    add("the key of another certificate", &pair("rsa.crt", "ec.key"), None);
    add("a certificate as the key", &pair("rsa.crt", "rsa.crt"), None);
    let files = |more: &str| {
        let [certificate, key] = ["ec.crt", "ec.key"].map(|name| data(name).display().to_string());
        format!("{{client-certificate: '{certificate}', client-key: '{key}'{more}}}")
    };
    add("files", &files(""), Some("ec"));
    add("a certificate and a token", &files(", token: reader-token"), Some("ec"));
    add("a certificate and empty fields", &files(", token: '', username: '', password: ''"), Some("ec"));
    add("a certificate twice", &files(&format!(", client-certificate-data: {}", base64("ec.crt"))), None);
    let mixed =
        format!("{{client-certificate-data: {}, client-key: '{}'}}", base64("ec.crt"), data("ec.key").display());
    add("a certificate as data, and its key as a file", &mixed, Some("ec"));
    add("a certificate without a key", &format!("{{client-certificate-data: {}}}", base64("ec.crt")), None);
    add("a certificate that is not there", "{client-certificate: /no/such, client-key: /no/such}", None);
    let lines = format!(
        "{{client-certificate-data: {}, client-key-data: {}}}",
        broken(&base64("rsa.crt")),
        broken(&base64("rsa.key"))
    );
    add("base64 in lines", &lines, Some("rsa"));
    let plugin = plugin("v1", ", interactiveMode: Never", r#"{"token":"reader-token"}"#, "");
    add(
        "a certificate and a plugin",
        &plugin.replacen('{', &format!("{}, ", files("").trim_end_matches('}')), 1),
        Some("ec"),
    );
}

fn tokens(world: &World, add: &mut dyn FnMut(&'static str, &str, Option<&'static str>)) {
    add("a token", "{token: reader-token}", Some("reader"));
    add("a wrong token", "{token: wrong}", None);
    add("a number as a token", "{token: 5}", None);
    world.file("newline", b"reader-token\n");
    world.file("spaces", b" \treader-token\r\n\n");
    world.file("blank", b" \n");
    world.file("empty", b"");
    add("a token's file that ends in a newline", "{tokenFile: newline}", Some("reader"));
    add("a token's file with white space", "{tokenFile: ./spaces}", Some("reader"));
    add("a token's file that is blank", "{tokenFile: blank}", None);
    add("a token's file that is empty", "{tokenFile: empty}", None);
    add("a token's file that is not there", "{tokenFile: no-such}", None);
    add("a token and its file", "{token: admin-token, tokenFile: newline}", Some("reader"));
    add("a token, and a file that is not there", "{token: admin-token, tokenFile: no-such}", Some("admin"));
    add("a token, and a file that is empty", "{token: admin-token, tokenFile: empty}", Some("admin"));
    add(
        "a token and empty fields",
        "{token: reader-token, username: '', password: '', tokenFile: '', as: ''}",
        Some("reader"),
    );
    add(
        "a token and null fields",
        "{token: reader-token, username: null, exec: null, as-groups: null}",
        Some("reader"),
    );
    add("a token and a user name", "{token: reader-token, username: u, password: p}", None);
    add("a token's file and a user name", "{tokenFile: newline, username: u, password: p}", None);
    add("a user name that nobody knows", "{username: u, password: p}", None);
    add(
        "an impersonation",
        "{token: admin-token, as: somebody, as-groups: [a, null, b], as-uid: '7', as-user-extra: {'Ex/t%ra': [x, z]}}",
        Some("somebody"),
    );
    add("groups without a user", "{token: admin-token, as-groups: [a]}", None);
    add("a provider that is gone", "{auth-provider: {name: gcp}}", None);
    add("a provider that nobody knows", "{auth-provider: {name: x}}", None);
    add("a provider that is gone, and a token", "{token: admin-token, auth-provider: {name: azure}}", None);
}

fn plugins(world: &World, add: &mut dyn FnMut(&'static str, &str, Option<&'static str>)) {
    const READER: &str = r#"{"token":"reader-token"}"#;
    let never = ", interactiveMode: Never";
    add("a plugin", &plugin("v1", never, READER, ""), Some("reader"));
    add("a plugin if there is a terminal", &plugin("v1", ", interactiveMode: IfAvailable", READER, ""), Some("reader"));
    add("a plugin that wants a terminal", &plugin("v1", ", interactiveMode: Always", READER, ""), None);
    add("a plugin without a mode", &plugin("v1", "", READER, ""), None);
    add("a plugin with another mode", &plugin("v1", ", interactiveMode: Sometimes", READER, ""), None);
    add("a beta plugin without a mode", &plugin("v1beta1", "", READER, ""), Some("reader"));
    let path = ", env: [{name: PATH, value: /no-such}]";
    add("a plugin with a PATH of its own", &plugin("v1", never, READER, path), Some("reader"));
    let null = plugin("v1", never, READER, "").replace("$0\\\"\", ", "$1\\\"\", null, ");
    add("a plugin with an argument of null", &null, Some("reader"));
    let twice = READER.replace('{', "{\"token\":\"x\",");
    add("a plugin that prints a member twice", &plugin("v1", never, &twice, ""), Some("reader"));
    add("a plugin that prints no kind", &plugin("v1", never, READER, "").replace("kind", "other"), Some("reader"));
    add("an alpha plugin", &plugin("v1alpha1", never, READER, ""), None);
    add("a plugin without a token", &plugin("v1", never, "{}", ""), None);
    add(
        "a plugin that is not there",
        "{exec: {apiVersion: client.authentication.k8s.io/v1, command: ./no-such, interactiveMode: Never}}",
        None,
    );
    let other = plugin("v1", never, READER, "").replacen("k8s.io/v1,", "k8s.io/v1beta1,", 1);
    add("a plugin that prints another version", &other, None);
    let expired = r#"{"token":"reader-token","expirationTimestamp":"2020-01-01T00:00:00Z"}"#;
    add("a plugin whose token has expired", &plugin("v1", never, expired, ""), Some("reader"));
    let certificate =
        format!(r#"{{"clientCertificateData":"{}","clientKeyData":"{}"}}"#, in_json("v1.crt"), in_json("v1.key"));
    add("a plugin that gives a certificate", &plugin("v1", never, &certificate, ""), Some("admin"));
    let half = format!(r#"{{"clientCertificateData":"{}"}}"#, in_json("v1.crt"));
    add("a plugin that gives half a certificate", &plugin("v1", never, &half, ""), None);
    // What the plugin is told decides its token.
    world.file(
        "told.sh",
        br#"#!/bin/sh
case "$KUBERNETES_EXEC_INFO" in
  *'"interactive":false'*) ;; *) exit 1;;
esac
case "$KUBERNETES_EXEC_INFO" in
  *'"server":"https://'*) ;; *) exit 1;;
esac
case "$KUBERNETES_EXEC_INFO" in
  *'"certificate-authority-data":"'*) ;; *) exit 1;;
esac
printf '%s\n' 'apiVersion: client.authentication.k8s.io/v1' 'kind: ExecCredential' 'status:' "  token: $TOKEN"
"#,
    );
    let told = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: ./told.sh, interactiveMode: Never, \
                provideClusterInfo: true, env: [{name: TOKEN, value: reader-token}]}}";
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(world.directory.path().join("told.sh"), mode).expect("a mode");
    add("a plugin that is told of the cluster, prints YAML, and is beside its file", told, Some("reader"));
    let and_token = plugin("v1", never, READER, "").replacen('{', "{token: admin-token, ", 1);
    add("a token and a plugin", &and_token, Some("admin"));
    let and_provider = plugin("v1", never, READER, "").replacen('{', "{auth-provider: {name: oidc}, ", 1);
    add("a provider and a plugin", &and_provider, None);
}

fn oidc(world: &World, add: &mut dyn FnMut(&'static str, &str, Option<&'static str>)) {
    const REFRESH: &str = ", refresh-token: 'r/0'";
    let (provider, user) = (&world.provider, Some(USER));
    let expired = |more: &str| format!(", id-token: {}{more}", unsigned(r#"{"exp":1700000000}"#));
    let valid = format!(", id-token: {}", provider.token);
    // Nobody is there who could be asked.
    let nowhere = |more: &str| super::provider::user("http://127.0.0.1:1", more);
    add("an ID token", &nowhere(&valid), user);
    add("an ID token, and a refresh token", &nowhere(&format!("{valid}{REFRESH}")), user);
    add("an ID token that has expired", &nowhere(&expired("")), None);
    add("an ID token that has expired, without a provider", &nowhere(&expired(REFRESH)), None);
    add("no token of OIDC", &nowhere(""), None);
    add("an ID token that is none", &provider.user("good", &format!(", id-token: x{REFRESH}")), None);
    let odd = unsigned("[]");
    add("an ID token with odd claims", &provider.user("good", &format!(", id-token: {odd}{REFRESH}")), None);
    add("an ID token that is renewed", &provider.user("good", &expired(REFRESH)), user);
    add("an issuer that ends in a slash", &provider.user("good/", &expired(REFRESH)), user);
    let timeless = format!(", id-token: {}{REFRESH}", unsigned("{}"));
    add("an ID token without an expiry", &provider.user("good", &timeless), user);
    let quoted = format!(", id-token: {}{REFRESH}", unsigned(r#"{"exp":"1700000000"}"#));
    add("an expiry in quotes", &provider.user("good", &quoted), user);
    let empty = ", id-token: '', refresh-token: r/0, extra-scopes: 'a,b'";
    add("a refresh token, and empty fields", &provider.user("good", empty), user);
    add("a refresh token that is wrong", &provider.user("good", ", refresh-token: x"), None);
    for (path, is) in [
        ("body", user),
        ("form", user),
        ("again", user),
        ("moved", user),
        ("gone", None),
        ("empty", None),
        ("without", None),
        ("refused", None),
        ("refused-with-200", None),
        ("no-access-token", None),
        ("garbage", None),
    ] {
        add(path, &provider.user(path, REFRESH), is);
    }
    world.file("provider.crt", provider.ca.as_bytes());
    world.file("nothing.pem", b"nothing\n");
    let file = |name: &str| format!(", idp-certificate-authority: '{}'", world.directory.path().join(name).display());
    let data = format!(", idp-certificate-authority-data: {}", provider.ca_data());
    let over_tls = |more: &str| provider.user_over_tls(&format!("{REFRESH}{more}"));
    add("a provider of a CA", &over_tls(&data), user);
    add("a provider of a CA in a file", &over_tls(&file("provider.crt")), user);
    add("a provider of a CA, and another one in a file", &over_tls(&format!("{data}{}", file("nothing.pem"))), user);
    add("a provider of another CA", &over_tls(&format!(", idp-certificate-authority-data: {}", world.ca)), None);
    add("a provider of no CA of the system", &over_tls(""), None);
    add("a provider's CA that is not there", &nowhere(&format!("{valid}{}", file("no-such"))), None);
    add("a provider's CA without a CA", &nowhere(&format!("{valid}{}", file("nothing.pem"))), None);
    add("a provider's CA that is no base64", &nowhere(&format!("{valid}, idp-certificate-authority-data: '!'")), None);
    let beside = format!("{valid}, idp-certificate-authority: provider.crt");
    add("a provider's CA beside the kubeconfig", &nowhere(&beside), None);
    let without = |field: &str, text: String| text.replace(field, &format!("x-{field}"));
    add("a provider without an issuer", &without("idp-issuer-url", nowhere(&valid)), None);
    add("a provider without a client", &without("client-id", nowhere(&valid)), None);
    add("a provider without a secret", &without("client-secret", provider.user("good", REFRESH)), None);
    let with_token = |text: String| text.replacen('{', "{token: admin-token, ", 1);
    add("a token and a provider", &with_token(nowhere("")), Some("admin"));
    add("a token, and an ID token that is none", &with_token(nowhere(", id-token: x")), Some("admin"));
    add("a token, and a provider without a client", &with_token(without("client-id", nowhere(""))), None);
    add("a number as a field of a provider", &nowhere(", refresh-token: 5"), None);
    let certificate = format!("client-certificate-data: {}, client-key-data: {}", base64("ec.crt"), base64("ec.key"));
    add("a certificate and a provider", &nowhere(&valid).replacen('{', &format!("{{{certificate}, "), 1), Some("ec"));
    add(
        "a certificate and a token that has expired",
        &nowhere("").replacen('{', &format!("{{{certificate}, "), 1),
        None,
    );
}

fn clusters(world: &World, add: &mut dyn FnMut(&'static str, &str, Option<&'static str>)) {
    let (server, ca, https) = (&world.server, world.ca_field(), &world.https);
    let is_admin = Some("admin");
    let of = |fields: &str| format!("{{server: '{server}', {fields}}}");
    let ours = |more: &str| of(&format!("{ca}, {more}"));
    let at = |url: &str| format!("{{server: '{url}', {ca}}}");
    let unverified = |more: &str| of(&format!("insecure-skip-tls-verify: {more}"));
    let through = |scheme: &str, proxy: &str| ours(&format!("proxy-url: '{scheme}://{proxy}'"));
    let with_user = |user: &str, proxy: &str| format!("{user}@{proxy}");
    add("a CA in lines", &of(&format!("certificate-authority-data: {}", broken(&world.ca))), is_admin);
    let cluster_ca = std::fs::read_to_string(&world.cluster.info.ca).expect("a CA");
    world.file("ca.crt", format!("some text\n{cluster_ca}").as_bytes());
    world.file("nothing.crt", b"nothing\n");
    let relative = format!("{{server: '{server}/', certificate-authority: ./ca.crt}}");
    add("a CA's file of a relative path", &relative, is_admin);
    add("a CA's file without a CA", &of("certificate-authority: nothing.crt"), None);
    add("a CA twice", &ours("certificate-authority: ca.crt"), None);
    add("another CA", &world.of_server("localhost", "ca.crt"), None);
    add("the system's CAs", &format!("{{server: '{server}'}}"), None);
    add("no verification", &unverified("true"), is_admin);
    add("no verification, in YAML 1.1", &unverified("yes"), is_admin);
    add("no verification, in quotes", &unverified("'yes'"), None);
    add("no verification, and a CA", &unverified(&format!("true, {ca}")), None);
    add("another name of the server", &ours("tls-server-name: localhost"), is_admin);
    add("a wrong name of the server", &ours("tls-server-name: other.test"), None);
    let client = world.of_server("client.test", "server-client.crt");
    add("the server's own certificate", &world.of_server("leaf.test", "server-leaf.crt"), is_admin);
    add("the server's own certificate, which is a CA", &world.of_server("own.test", "server-own.crt"), is_admin);
    add("the server's own certificate, of another name", &world.of_server("localhost", "server-leaf.crt"), None);
    add("the server's own certificate, which is for clients", &client, None);
    add("a server and a CA of 1,024 bits", &world.of_server("old.test", "server-old-ca.crt"), is_admin);
    add("a proxy", &through("http", &world.http), is_admin);
    add("a proxy with a user", &through("http", &with_user("u:p%3Aw", &world.http)), is_admin);
    add("a proxy with a wrong user", &through("http", &with_user("u:x", &world.http)), None);
    let over_tls = |proxy: &str| unverified(&format!("true, proxy-url: 'https://{proxy}'"));
    add("a proxy over TLS", &over_tls(https), is_admin);
    add("a proxy over TLS with a user", &over_tls(&with_user("u:p%3Aw", https)), is_admin);
    add("a proxy over TLS of another CA", &through("https", https), None);
    add("a proxy by SOCKS", &through("socks5", &world.socks), is_admin);
    add("a proxy by SOCKS with a user", &through("socks5", &with_user("u:p%3Aw", &world.socks)), is_admin);
    add("a proxy that is not there", &through("http", "127.0.0.1:1"), None);
    add("a proxy of another kind", &through("ftp", &world.http), None);
    add("a server without TLS", &format!("{{server: '{}'}}", server.replace("https", "http")), None);
    add("a user in the URL", &at(&server.replace("//", "//u:p@")), None);
    add("a server without a scheme", &at(server.trim_start_matches("https://")), None);
    add("no server", &format!("{{{ca}}}"), None);
}

/// Takes what the files are, the files, and who one is with them.
type AddFiles<'a> = dyn FnMut(&'static str, &[String], Option<&'static str>) + 'a;

fn several(world: &World, add: &mut AddFiles<'_>) {
    let cluster = world.cluster();
    let whole = file(&cluster, "{token: reader-token}");
    let others = "current-context: other\nclusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]\n\
                  users: [{name: u, user: {token: admin-token}}]\ncontexts: [{name: other, context: {cluster: k, user: u}}]\n";
    add("the first of two files", &[whole.clone(), others.to_owned()], Some("reader"));
    let parts = [
        "current-context: ''\n".to_owned(),
        format!("clusters: [{{name: k, cluster: {cluster}}}]\n"),
        "users: [{name: u, user: {token: reader-token}}]\n".to_owned(),
        "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u, namespace: x}}]\n".to_owned(),
        String::new(),
    ];
    add("one of five files", &parts, Some("reader"));
    add("no current context", &[whole.replace("current-context: c", "current-context: ''")], None);
    add("a context that is not there", &[whole.replace("current-context: c", "current-context: d")], None);
    add("a cluster that is not there", &[whole.replace("cluster: k, user", "cluster: x, user")], None);
    add("a name twice", &[whole.replace("users: [", "users: [{name: u, user: {}}, ")], None);
    add("another kind", &[whole.replace("kind: Config", "kind: Pod")], None);
    add("no kind", &[whole.replace("kind: Config\n", "").replace("apiVersion: v1\n", "")], Some("reader"));
    add(
        "JSON",
        &[serde_json::to_string(&serde_saphyr::from_str::<serde_json::Value>(&whole).expect("YAML")).expect("JSON")],
        Some("reader"),
    );
    add(
        "fields that nobody knows",
        &[format!("{whole}x: {{y: 1}}\npreferences: {{colors: true}}\nextensions: []\n")],
        Some("reader"),
    );
    add("a second document, which is malformed", &[format!("{whole}---\n[{{\n")], Some("reader"));
}
