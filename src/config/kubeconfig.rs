//! The kubeconfigs that are used when no setting names one: those that kubectl would read.

use std::io;
use std::path::{Path, PathBuf};

use super::Source;

const SERVICE_HOST: &str = "KUBERNETES_SERVICE_HOST";
const SERVICE_PORT: &str = "KUBERNETES_SERVICE_PORT";
/// Where the kubelet puts the token of a pod's ServiceAccount.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// Finds them. In a pod with a ServiceAccount there are none, because its own configuration comes first. Elsewhere they
/// are the files of `$KUBECONFIG` that exist, each once and in their order, or else `~/.kube/config`.
pub(super) fn discover(source: &dyn Source) -> Vec<PathBuf> {
    // A file that cannot be read exists. What is wrong with it is reported when it is used.
    let exists = |path: &Path| source.read(path).err().is_none_or(|error| error.kind() != io::ErrorKind::NotFound);
    if is_pod(source) && exists(Path::new(TOKEN)) {
        return Vec::new();
    }
    let mut found: Vec<PathBuf> = Vec::new();
    for path in named(source) {
        if exists(&path) && !found.contains(&path) {
            found.push(path);
        }
    }
    found
}

/// Why there are no credentials for an apiserver, after [`discover`] has found no kubeconfig: where it looked, and what
/// is wrong with the ServiceAccount of the pod.
pub fn not_found(source: &dyn Source, of_pod: &str) -> String {
    let named = named(source).iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let files = match (set(source, "KUBECONFIG"), named.as_str()) {
        (Some(_), "") => "$KUBECONFIG names no file".to_owned(),
        (Some(_), paths) => format!("no file that $KUBECONFIG names exists ({paths})"),
        (None, "") => "neither $KUBECONFIG nor $HOME is set".to_owned(),
        (None, path) => format!("$KUBECONFIG is not set, and {path} does not exist"),
    };
    let missing = [SERVICE_HOST, SERVICE_PORT].into_iter().find(|name| set(source, name).is_none());
    let pod = match missing {
        Some(name) => format!("informerd does not run in a pod ({name} is not set)"),
        None => format!("the service account of this pod cannot be used ({of_pod})"),
    };
    format!("no kubeconfig was found: {files}; {pod}; --kubeconfig FILE names a kubeconfig")
}

/// The files that kubectl would read.
fn named(source: &dyn Source) -> Vec<PathBuf> {
    match set(source, "KUBECONFIG") {
        Some(list) => std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect(),
        None => set(source, "HOME").map(|home| Path::new(&home).join(".kube/config")).into_iter().collect(),
    }
}

fn is_pod(source: &dyn Source) -> bool {
    set(source, SERVICE_HOST).is_some() && set(source, SERVICE_PORT).is_some()
}

fn set(source: &dyn Source, name: &str) -> Option<String> {
    source.variable(name).ok().flatten().filter(|value| !value.is_empty())
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

    #[test]
    fn what_was_looked_for_is_told() {
        let world = MadeUp::default();
        let home = world.clone().variable("HOME", "/home/a");
        let listed = home.clone().variable("KUBECONFIG", "/one:/two");
        for (world, words) in [
            (&world, "neither $KUBECONFIG nor $HOME is set; informerd does not run in a pod (KUBERNETES_SERVICE_HOST"),
            (&home, "$KUBECONFIG is not set, and /home/a/.kube/config does not exist; informerd does not run in a pod"),
            (&listed, "no file that $KUBECONFIG names exists (/one, /two); informerd does not run in a pod"),
            (&home.clone().variable("KUBECONFIG", ":"), "$KUBECONFIG names no file; "),
            (
                &listed.clone().variable(SERVICE_HOST, "10.0.0.1").variable(SERVICE_PORT, "443"),
                "the service account of this pod cannot be used (no token)",
            ),
        ] {
            let told = not_found(world, "no token");
            assert!(told.contains(words) && told.ends_with("--kubeconfig FILE names a kubeconfig"), "{told}");
        }
    }
}
