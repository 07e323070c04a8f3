//! The kubeconfigs that are used when no setting names one: those that kubectl would read.

use std::io;
use std::path::{Path, PathBuf};

use super::Source;

/// Where the kubelet puts the token of a pod's ServiceAccount.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Finds them. In a pod with a ServiceAccount there are none, because its own configuration comes first. Elsewhere they
/// are the files of `$KUBECONFIG` that exist, each once and in their order, or else `~/.kube/config`.
pub(super) fn discover(source: &dyn Source) -> Vec<PathBuf> {
    let set = |name| source.variable(name).ok().flatten().filter(|value| !value.is_empty());
    // A file that cannot be read exists. What is wrong with it is reported when it is used.
    let exists = |path: &Path| source.read(path).err().is_none_or(|error| error.kind() != io::ErrorKind::NotFound);
    if set("KUBERNETES_SERVICE_HOST").is_some() && set("KUBERNETES_SERVICE_PORT").is_some() && exists(Path::new(TOKEN))
    {
        return Vec::new();
    }
    let mut found: Vec<PathBuf> = Vec::new();
    let home = || set("HOME").map(|home| Path::new(&home).join(".kube/config"));
    let named: Vec<PathBuf> = match set("KUBECONFIG") {
        Some(list) => std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect(),
        None => home().into_iter().collect(),
    };
    for path in named {
        if exists(&path) && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::source::MadeUp;
    use super::*;

    fn found(world: &MadeUp) -> Vec<String> {
        discover(world).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn finds_what_kubectl_reads() {
        let home = MadeUp::default().variable("HOME", "/home/a");
        assert!(found(&home).is_empty(), "no such file");
        let home = home.file("/home/a/.kube/config", "").file("/one", "").file("/two", "");
        assert_eq!(found(&home), ["/home/a/.kube/config"]);
        assert_eq!(found(&home.clone().variable("KUBECONFIG", "")), ["/home/a/.kube/config"]);
        let listed = home.variable("KUBECONFIG", "/two::/missing:/one:/two");
        assert_eq!(found(&listed), ["/two", "/one"]);
        assert!(found(&listed.variable("KUBECONFIG", "/missing")).is_empty(), "as for kubectl, no other file");
    }

    #[test]
    fn a_pod_with_a_service_account_uses_it() {
        let outside = MadeUp::default().variable("KUBECONFIG", "/one").file("/one", "");
        let pod =
            outside.clone().variable("KUBERNETES_SERVICE_HOST", "10.0.0.1").variable("KUBERNETES_SERVICE_PORT", "443");
        assert_eq!(found(&pod), ["/one"], "a pod without the token");
        assert!(found(&pod.file(TOKEN, "t")).is_empty());
        assert_eq!(found(&outside.file(TOKEN, "t")), ["/one"], "a file, but no pod");
    }
}
