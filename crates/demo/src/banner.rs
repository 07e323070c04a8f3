//! The first lines of the demo, and the commands to try.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use super::clients::Clients;
use super::options::Options;

/// The default listener, which the commands of informerd need not be told.
const DEFAULT_URL: &str = "http://127.0.0.1:8001";

/// Where the demo serves.
#[derive(Clone, Debug)]
pub(super) struct Banner<'a> {
    /// The program as it was called.
    pub(super) program: &'a str,
    /// `http://127.0.0.1:8001`
    pub(super) url: &'a str,
    /// The CA of an https listener.
    pub(super) ca: Option<&'a Path>,
    pub(super) admin: SocketAddr,
    pub(super) kubeconfig: &'a Path,
    pub(super) options: &'a Options,
}

// === impl Banner ===

impl Banner<'_> {
    pub(super) fn render(&self) -> String {
        let Self { url, admin, options, .. } = self;
        let Options { nodes, pods, namespaces, churn, watchers, .. } = options;
        let mut text = format!(
            "informerd demo: {nodes} nodes, {pods} pods, {namespaces} namespaces, {churn} changes a second.\n\
             The cluster is simulated. Clients read it through informerd:\n  {}\n\
             An equal cluster without informerd has the same clients.\n\n",
            Clients::describe(*watchers)
        );
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  serving     {url}");
        let _ = writeln!(text, "  status      http://{admin}/status");
        let _ = writeln!(text, "  kubeconfig  {}", self.kubeconfig.display());
        let _ = writeln!(text, "\nTry in another terminal; the cache answers:");
        for command in self.commands() {
            let _ = writeln!(text, "  {command}");
        }
        text
    }

    /// Commands that are answered from the cache.
    pub(super) fn commands(&self) -> [String; 3] {
        let Self { program, url, ca, .. } = self;
        let mut flags = if *url == DEFAULT_URL { String::new() } else { format!(" --address {url}") };
        let mut curl = String::new();
        if let Some(ca) = ca {
            flags.push_str(&format!(" --ca-file {}", ca.display()));
            curl.push_str(&format!("--cacert {} ", ca.display()));
        }
        [
            format!("{program} get pods -n team-1{flags}"),
            format!("{program} watch pods -n team-1{flags}"),
            format!("curl {curl}'{url}/api/v1/nodes/node-0001?resourceVersion=0'"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: Options =
        Options { nodes: 20, pods: 500, namespaces: 10, churn: 20, seed: 1, watchers: 50, outage: None };

    fn banner<'a>(url: &'a str, ca: Option<&'a Path>) -> Banner<'a> {
        let admin = "127.0.0.1:8002".parse().unwrap();
        Banner { program: "informerd", url, ca, admin, kubeconfig: Path::new("/tmp/k"), options: &OPTIONS }
    }

    #[test]
    fn names_the_addresses_and_what_to_try() {
        let text = banner(DEFAULT_URL, None).render();
        for part in [
            "20 nodes, 500 pods, 10 namespaces, 20 changes a second",
            "  50 watchers, ",
            "serving     http://127.0.0.1:8001\n",
            "status      http://127.0.0.1:8002/status\n",
            "\n  informerd get pods -n team-1\n",
            "\n  curl 'http://127.0.0.1:8001/api/v1/nodes/node-0001?resourceVersion=0'\n",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn commands_lead_to_the_listener() {
        let [get, watch, _] = banner("http://127.0.0.1:9", None).commands();
        assert_eq!(get, "informerd get pods -n team-1 --address http://127.0.0.1:9");
        assert_eq!(watch, "informerd watch pods -n team-1 --address http://127.0.0.1:9");
        let [get, _, curl] = banner("https://127.0.0.1:9", Some(Path::new("/ca"))).commands();
        assert!(get.ends_with(" --address https://127.0.0.1:9 --ca-file /ca"), "{get}");
        assert!(curl.starts_with("curl --cacert /ca 'https://127.0.0.1:9/"), "{curl}");
    }
}
