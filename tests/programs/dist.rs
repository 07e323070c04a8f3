//! What `build/dist.sh` makes for a release: archives, their sums, and the manifest of a kubectl plugin for krew.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::process;
use crate::support::tied;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// Runs a line of shell in a directory.
fn shell(directory: &Path, line: &str) -> Output {
    let mut command = tied::blocking("bash");
    command.args(["-c", line]).current_dir(directory).env("DIST", Path::new(ROOT).join("build/dist.sh"));
    command.output().expect("bash runs")
}

fn succeeds(directory: &Path, line: &str) -> String {
    let output = shell(directory, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A program that writes its manual page.
const PROGRAM: &str = "#!/bin/sh\nif [ \"$1 $2\" = 'man --directory' ]; then mkdir -p \"$3\" && echo page >\"$3/informerd.1\"; else echo packed; fi\n";

#[test]
fn archives_are_the_same_whoever_packs_them_and_the_index_tells_what_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("program"), PROGRAM).unwrap();
    assert_eq!(succeeds(at, "$DIST version").trim(), VERSION);
    let made = succeeds(at, "umask 022; TZ=UTC LC_ALL=C $DIST archive --program program one");
    succeeds(at, "umask 077; touch program; TZ=Asia/Kathmandu LC_ALL=C.UTF-8 $DIST archive --program program two");
    let name = Path::new(made.trim()).file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name == format!("informerd-{VERSION}-linux-amd64.tar.gz") || name.ends_with("-arm64.tar.gz"), "{name}");
    let archive = std::fs::read(at.join("one").join(&name)).unwrap();
    assert!(archive == std::fs::read(at.join("two").join(&name)).unwrap(), "two archives of one program differ");

    // Two that were packed within a second would be the same anyway.
    let listed = succeeds(at, &format!("TZ=UTC tar --list --verbose --numeric-owner --file=one/{name}"));
    let names: Vec<_> = listed.lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(names, ["LICENSE", "informerd", "man/", "man/man1/", "man/man1/informerd.1"]);
    assert!(listed.lines().all(|line| line.contains(" 0/0 ") && line.contains(" 1970-01-01 00:00 ")), "{listed}");

    // As if the other architecture had been made elsewhere.
    let of = |architecture: &str| format!("informerd-{VERSION}-linux-{architecture}.tar.gz");
    let other = if name == of("amd64") { of("arm64") } else { of("amd64") };
    std::fs::write(at.join("one").join(&other), b"of another machine").unwrap();
    // What is no archive has a sum, and no place in the plugin.
    std::fs::write(at.join("one/informerd-9.tgz"), b"a chart").unwrap();
    succeeds(at, "$DIST index one https://releases.example.com/informerd/");
    let checked = succeeds(&at.join("one"), "sha256sum --check --strict checksums.txt");
    assert_eq!(
        checked.lines().collect::<Vec<_>>(),
        ["informerd-9.tgz: OK".to_owned(), of("amd64") + ": OK", of("arm64") + ": OK"]
    );

    // What krew asks of a manifest.
    let plugin = std::fs::read_to_string(at.join("one/informerd.yaml")).unwrap();
    let plugin: Value = serde_saphyr::from_str(&plugin).expect("YAML");
    assert_eq!(plugin["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2");
    assert_eq!((&plugin["kind"], &plugin["metadata"]["name"]), (&json!("Plugin"), &json!("informerd")));
    assert_eq!(plugin["spec"]["version"], VERSION);
    let short = plugin["spec"]["shortDescription"].as_str().unwrap();
    assert!((1..=50).contains(&short.len()) && !short.contains('\n') && !short.ends_with('.'), "{short}");
    let platforms = plugin["spec"]["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), 2);
    for (platform, architecture) in platforms.iter().zip(["amd64", "arm64"]) {
        assert_eq!(platform["selector"], json!({"matchLabels": {"os": "linux", "arch": architecture}}));
        let archive = of(architecture);
        assert_eq!(platform["uri"], format!("https://releases.example.com/informerd/{archive}"));
        let sum = succeeds(&at.join("one"), &format!("sha256sum {archive}"));
        assert_eq!(platform["sha256"], sum.split(' ').next().unwrap());
        // All that is named is in the archive.
        if archive == name {
            succeeds(at, &format!("mkdir unpacked && tar --extract --directory=unpacked --file=one/{archive}"));
            let program = at.join("unpacked").join(platform["bin"].as_str().unwrap());
            assert_eq!(std::fs::metadata(&program).unwrap().permissions().mode() & 0o777, 0o755);
            for file in platform["files"].as_array().unwrap() {
                assert!(at.join("unpacked").join(file["from"].as_str().unwrap()).is_file(), "{file}");
            }
            assert_eq!(succeeds(at, &program.display().to_string()), "packed\n");
        }
    }
    let empty = shell(at, "mkdir none && $DIST index none https://releases.example.com");
    assert!(!empty.status.success());
    assert!(String::from_utf8_lossy(&empty.stderr).contains("none has no archive of v"));
}

/// krew links a plugin's program as `kubectl-NAME`, and kubectl runs that with what follows.
#[tokio::test]
async fn kubectl_runs_the_program_as_its_plugin() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_informerd"), directory.path().join("kubectl-informerd")).unwrap();
    for (arguments, said) in [
        (&["--version"][..], env!("CARGO_PKG_VERSION")),
        (&["status", "--help"], "status"),
        (&["check", "--help"], "check"),
        (&["kubeconfig", "--help"], "--write"),
    ] {
        let mut kubectl = crate::support::tied::command(process::judge().await);
        kubectl.args(["kubectl", "informerd"]).args(arguments).env("PATH", directory.path());
        let printed = process::stdout("kubectl informerd", process::run(kubectl, "").await);
        assert!(printed.contains(said), "{arguments:?}: {printed}");
    }
}

#[test]
fn the_workflow_of_a_release_is_clean() {
    let workflow = Path::new(ROOT).join(".github/workflows/release.yaml");
    let output = tied::blocking(process::tool("actionlint")).arg(&workflow).output().expect("runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    // Actions are pinned to commits, and what a job may do is said.
    let workflow = std::fs::read_to_string(workflow).unwrap();
    let actions: Vec<_> = workflow.lines().filter_map(|line| line.trim().strip_prefix("- uses: ")).collect();
    assert!(actions.len() > 3, "{actions:?}");
    for action in actions {
        let commit =
            action.split_once('@').and_then(|(_, rest)| rest.split_once(" # v")).expect("NAME@COMMIT # vVERSION").0;
        assert!(commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()), "{action}");
    }
    let workflow: Value = serde_saphyr::from_str(&workflow).expect("YAML");
    assert_eq!(workflow["permissions"], json!({"contents": "read"}));
}

#[test]
fn make_dist_does_it_all_on_this_machine() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    std::fs::write(at.join("program"), PROGRAM).unwrap();
    let tools = process::tool("cyclonedx");
    let tools = tools.parent().unwrap().display();
    succeeds(Path::new(ROOT), &format!("PATH={tools}:$PATH make dist PROGRAM={0}/program DIST={0}/dist", at.display()));
    let checked = succeeds(&at.join("dist"), "sha256sum --check --strict checksums.txt");
    let made = format!("informerd-{VERSION}-linux-");
    let (parts, archive) = checked.trim().split_once('\n').unwrap();
    assert!(archive.starts_with(&made) && archive.ends_with(".tar.gz: OK"), "{checked}");
    let plugin = std::fs::read_to_string(at.join("dist/informerd.yaml")).unwrap();
    assert!(plugin.contains(&format!("uri: file://{}/dist/{made}", at.display())), "{plugin}");

    // What the program is made from: the crates of Cargo.lock that it links, and no more.
    let parts = parts.strip_suffix(": OK").unwrap();
    assert!(parts.starts_with(&made) && parts.ends_with(".cdx.json"), "{checked}");
    let parts = std::fs::read_to_string(at.join("dist").join(parts)).unwrap();
    assert!(!parts.contains(ROOT) && !parts.contains(&*std::env::temp_dir().to_string_lossy()), "{parts}");
    let parts: Value = serde_json::from_str(&parts).unwrap();
    assert_eq!((&parts["bomFormat"], &parts["specVersion"]), (&json!("CycloneDX"), &json!("1.5")));
    let lock = succeeds(Path::new(ROOT), "git show HEAD:Cargo.lock");
    let locks = |name: &str, version: &str| lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"\n"));
    let program = &parts["metadata"]["component"];
    assert_eq!(program["name"], "informerd");
    assert!(locks("informerd", program["version"].as_str().unwrap()), "{program}");
    let parts: Vec<_> =
        parts["components"].as_array().unwrap().iter().map(|part| part["purl"].as_str().unwrap()).collect();
    for part in &parts {
        // A crate of the repository has its place behind its version.
        let (name, version) =
            part.strip_prefix("pkg:cargo/").and_then(|part| part.split('?').next()?.split_once('@')).expect(part);
        assert!(locks(name, version), "{part}");
    }
    let has = |name: &str| parts.iter().any(|part| part.starts_with(&format!("pkg:cargo/{name}@")));
    assert!(["tokio", "hyper", "rustls", "aws-lc-sys", "zstd-sys", "tonic"].into_iter().all(has), "{parts:?}");
    assert!(!["informerd-sim", "proptest", "criterion", "windows-sys"].into_iter().any(has), "{parts:?}");
}
