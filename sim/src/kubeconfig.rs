//! Creates a kubeconfig for a server address.

/// The text of a kubeconfig. Its only context connects to `url` without credentials.
pub fn kubeconfig(name: &str, url: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\nclusters:\n- name: {name}\n  cluster:\n    server: {url}\nusers:\n- name: {name}\n  user: {{}}\ncontexts:\n- name: {name}\n  context:\n    cluster: {name}\n    user: {name}\ncurrent-context: {name}\n"
    )
}
