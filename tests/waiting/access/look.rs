//! `informerd get` and `watch` of a listener that asks who comes: by a token, by a certificate, from a kubeconfig.

use std::path::Path;
use std::process::Stdio;

use crate::access::certificates::Authority;
use crate::access::world::World;
use crate::cluster::kubeconfig;
use crate::support::binary::{informerd, said};
use crate::support::file;
use crate::support::lines::Lines;

async fn run(arguments: &[&str]) -> (i32, String, String) {
    said(informerd("").args(arguments)).await
}

/// The maps of one namespace.
fn config_maps<'a>(who: &[&'a str]) -> Vec<&'a str> {
    [&["get", "configmaps", "-n", "a", "-l", "app"], who].concat()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_read_reads() {
    let directory = tempfile::tempdir().unwrap();
    let authority = Authority::new("ours");
    let world = World::start(&format!("authentication: {{clientCa: {}}}\n", authority.bundle.display())).await;
    let token = world.token("space", &[]).await;
    let token_file = file(directory.path(), "token", &token);
    let (certificate, key) = authority.issue("root", &["system:masters"]);
    let kubeconfig = file(directory.path(), "kubeconfig", kubeconfig(&world.daemon.url, &world.ca, &token));

    let here = ["--address", &world.daemon.url, "--ca-file", text(&world.ca)];
    let both = (0, "a/one\na/two\n".to_owned(), String::new());
    assert_eq!(run(&config_maps(&[&here[..], &["--token", &token]].concat())).await, both);
    let by_file = config_maps(&[&here[..], &["--token-file", text(&token_file)]].concat());
    assert_eq!(run(&by_file).await, both);
    let shown = ["--client-certificate", text(&certificate), "--client-key", text(&key)];
    // What is forwarded, as discovery is, goes without the certificate, whose key stays with the client. The names of
    // informers are told all the same.
    assert_eq!(run(&config_maps(&[&here[..], &shown].concat())).await, both);
    let short = [&["get", "cm", "-n", "a"], &here[..], &shown].concat();
    let (code, _, err) = run(&short).await;
    assert!(code == 1 && err.contains("pods.v1."), "{err}");
    let in_full = [&["get", "configmaps.v1.", "-n", "a", "-l", "app"], &here[..], &shown].concat();
    assert_eq!(run(&in_full).await, both);
    let by_kubeconfig = ["--kubeconfig", text(&kubeconfig)];
    assert_eq!(run(&config_maps(&by_kubeconfig)).await, both);

    // Who may not, is told so; whom nobody vouches for, is not spoken with.
    let elsewhere = [&["get", "configmaps", "-n", "b"], &here[..], &["--token", &token]].concat();
    for (arguments, words) in [
        (elsewhere, "forbidden"),
        (config_maps(&here), "nauthorized"),
        (config_maps(&[&here[..], &["--token", "nonsense"]].concat()), "nauthorized"),
        (
            config_maps(&[
                "--address",
                &world.daemon.url,
                "--ca-file",
                text(&world.cluster.info.ca),
                "--token",
                &token,
            ]),
            "certificate",
        ),
    ] {
        let (code, out, err) = run(&arguments).await;
        assert_eq!((code, out.as_str(), err.lines().count()), (1, "", 1), "{arguments:?}: {err}");
        assert!(err.contains(words) && !err.contains(&token), "{arguments:?}: {err}");
    }

    let mut watch = informerd(&format!("watch configmaps -n a -l app=y --kubeconfig {}", kubeconfig.display()));
    let mut child = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Lines::of(&mut child.stdout);
    assert!(lines.next().await.unwrap().starts_with("ADDED    a/two "));
    world.delete("/api/v1/namespaces/a/configmaps/two").await;
    assert!(lines.next().await.unwrap().starts_with("DELETED  a/two "));
}
