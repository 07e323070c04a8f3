//! `informerd get` and `watch` of a listener that asks who comes: by a token, by a certificate, from a kubeconfig.

use std::path::Path;
use std::process::{Output, Stdio};

use tokio::io::{AsyncBufReadExt, BufReader};

use crate::access::certificates::Authority;
use crate::access::world::World;
use crate::cluster::kubeconfig;
use crate::support::binary::informerd;
use crate::support::within;

async fn run(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = informerd("").args(arguments).output().await.unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
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
    let file = |name: &str| directory.path().join(name);
    let authority = Authority::new("ours");
    std::fs::write(file("clients.crt"), &authority.pem).unwrap();
    let world = World::start(&format!("authentication: {{clientCa: {}}}\n", file("clients.crt").display())).await;
    let token = world.token("space", &[]).await;
    std::fs::write(file("token"), &token).unwrap();
    let (certificate, key) = authority.issue(directory.path(), "root", &["system:masters"]);
    let kubeconfig = kubeconfig(&world.daemon.url, &world.ca, &token);
    std::fs::write(file("kubeconfig"), kubeconfig).unwrap();

    let here = ["--address", &world.daemon.url, "--ca-file", text(&world.ca)];
    let both = (0, "a/one\na/two\n".to_owned(), String::new());
    assert_eq!(run(&config_maps(&[&here[..], &["--token", &token]].concat())).await, both);
    let token_file = file("token");
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
    let by_kubeconfig = file("kubeconfig");
    let by_kubeconfig = ["--kubeconfig", text(&by_kubeconfig)];
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

    let mut watch = informerd(&format!("watch configmaps -n a -l app=y --kubeconfig {}", file("kubeconfig").display()));
    let mut child = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        within("the next line of the watch", lines.next_line()).await.unwrap().unwrap().starts_with("ADDED    a/two ")
    );
    world.delete("/api/v1/namespaces/a/configmaps/two").await;
    assert!(
        within("the next line of the watch", lines.next_line()).await.unwrap().unwrap().starts_with("DELETED  a/two ")
    );
}
