use super::*;

fn read(text: &str) -> Result<Merged, KubeconfigError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    Merged::read(&[file.path().to_owned()])
}

/// What is one, and what files mean together, is compared with kubectl in `tests/real/kubeconfigs`.
#[test]
fn errors_quote_nothing_of_a_file_that_is_no_kubeconfig() {
    let deep = format!("{}{}", "[".repeat(990), "]".repeat(990));
    read(&format!("x: {deep}\nclusters: [{{name: c, cluster: {{extensions: [{{extension: {deep}}}]}}}}]")).unwrap();
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
        let error = read(text).map(drop).unwrap_err().to_string();
        assert!(!error.contains("4711"), "it may be a secret: {error}");
    }
}
