use super::*;

fn read(files: &[&str]) -> Result<Merged, KubeconfigError> {
    let directory = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..files.len()).map(|number| directory.path().join(number.to_string())).collect();
    for (path, text) in paths.iter().zip(files) {
        std::fs::write(path, text).unwrap();
    }
    Merged::read(&paths)
}

#[test]
fn the_first_file_wins() {
    let one =
        "current-context: ''\nclusters: [{name: both, cluster: {server: '1'}}, {name: one, cluster: {server: '1'}}]\n";
    let two = "current-context: two\nclusters: [{name: both, cluster: {server: '2', tls-server-name: x}}]\n\
               users: [{name: u, user: {token: t}}]\n";
    let three = "current-context: three\nusers: [{name: u, user: {username: name}}]\ncontexts: [{name: c, context: {cluster: both}}]\n";
    let merged = read(&[one, two, three, ""]).unwrap();
    let servers: Vec<_> = merged.clusters.iter().map(|(name, it)| (name.as_str(), it.server.as_str())).collect();
    assert_eq!(servers, [("both", "1"), ("one", "1")]);
    // Nothing is added to an entry.
    assert_eq!(merged.clusters["both"].tls_server_name, "");
    assert_eq!((merged.users["u"].token.as_str(), merged.users["u"].username.as_str()), ("t", ""));
    assert_eq!((merged.current_context.as_str(), merged.contexts["c"].cluster.as_str()), ("two", "both"));
    assert!(Merged::read(&["/no/such".into()]).err().unwrap().to_string().contains("/no/such"));
}

#[test]
fn paths_are_of_the_directory_of_their_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config");
    let user = "{client-certificate: a/b, client-key: /k, tokenFile: ../t, exec: {command: ./e}}";
    let other = "{exec: {command: e}}";
    let text = format!(
        "clusters: [{{name: c, cluster: {{certificate-authority: ca}}}}]\n\
        users: [{{name: u, user: {user}}}, {{name: v, user: {other}}}]\n"
    );
    std::fs::write(&path, text).unwrap();
    let merged = Merged::read(&[path]).unwrap();
    let of = |name: &str| directory.path().join(name).display().to_string();
    let user = &merged.users["u"];
    assert_eq!(merged.clusters["c"].certificate_authority, of("ca"));
    assert_eq!((&user.client_certificate, user.client_key.as_str()), (&of("a/b"), "/k"));
    assert_eq!((&user.token_file, &user.exec.as_ref().unwrap().command), (&of("../t"), &of("./e")));
    assert_eq!(merged.users["v"].exec.as_ref().unwrap().command, "e");
}

#[test]
fn what_is_a_kubeconfig() {
    for text in [
        "",
        "# nothing\n",
        "{}",
        "clusters: null\nusers:\n- name: u\n  user: null\n- name: v\n  user: {token: null, exec: null, as-groups: null}\n",
        "clusters: [{name: c, cluster: {insecure-skip-tls-verify: yes}}]",
        "kind: Config\napiVersion: v1\npreferences: {colors: true}\nx: y\n---\nkind: Pod\n",
        "current-context: a\ncurrent-context: b\n",
    ] {
        read(&[text]).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    let deep = format!("{}{}", "[".repeat(990), "]".repeat(990));
    read(&[&format!("x: {deep}\nclusters: [{{name: c, cluster: {{extensions: [{{extension: {deep}}}]}}}}]")]).unwrap();
    for text in [
        "[]",
        "a: b: c",
        "kind: Pod\napiVersion: v1\n",
        "kind: Config\napiVersion: v2\n",
        "users: [{name: u, user: {token: 4711}}]",
        "users: [{name: u, user: {password: 4711.5}}]",
        "users: [{name: u, user: 4711, a}]",
        "users: [{name: u, user: 'a`b, expected 4711'}]",
        "users: [{name: u}, {name: u}]",
        "clusters: [{name: c, cluster: {insecure-skip-tls-verify: 'yes'}}]",
        "users: [{name: u, user: {username: yes}}]",
    ] {
        let error = read(&[text]).map(drop).unwrap_err().to_string();
        assert!(!error.contains("4711"), "it may be a secret: {error}");
    }
}
