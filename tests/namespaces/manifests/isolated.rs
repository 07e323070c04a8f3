//! Tests that need fixed ports and paths, as a pod has them, run in a network and a mount namespace of their own: the
//! test starts itself again inside. There, `/run` is empty and anything may be mounted; the only network is loopback.

use crate::support::tied;
use std::future::Future;

const INSIDE: &str = "ISOLATED_TEST";
/// An address of the node, besides loopback.
pub(super) const HOST_IP: &str = "10.0.0.7";
/// Brings loopback up (there need be no `ip`), and gives it the address of the node: SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP,
/// SIOCSIFADDR.
const LOOPBACK: &str = "import fcntl, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
r = fcntl.ioctl(s, 0x8913, struct.pack('16sh14x', b'lo', 0))
fcntl.ioctl(s, 0x8914, struct.pack('16sh14x', b'lo', struct.unpack('16sh14x', r)[1] | 1))
fcntl.ioctl(s, 0x8916, struct.pack('16sHH4s8x', b'lo:0', socket.AF_INET, 0, socket.inet_aton('10.0.0.7')))";
/// Where `/proc` cannot be had anew, the one from outside is as good for whoever looks at himself.
const SETUP: &str = r#"{ mount -t proc proc /proc 2>/dev/null || true; } && python3 -c "$LOOPBACK" && mount -t tmpfs tmpfs /run && exec "$0" "$@""#;

/// Runs `body` inside, for the test of this name; `before` outside, where there still is a network, with the variables
/// it is to hand over.
pub(super) fn isolated<B, F>(test: &str, before: B, body: F)
where
    B: Future<Output = Vec<(&'static str, String)>>,
    F: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    if std::env::var_os(INSIDE).is_some() {
        return runtime.block_on(body);
    }
    let variables = runtime.block_on(before);
    let mut command = tied::blocking("unshare");
    // Whoever is not root becomes it in a user namespace.
    let root = has_uid_zero();
    if !root {
        command.args(["--user", "--map-root-user"]);
    }
    let status = command
        // The first process of its namespace: with it end all that it has started, whatever user they are.
        .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--", "sh", "-c", SETUP])
        .arg(std::env::current_exe().expect("the test has a file"))
        .args([&format!("manifests::{test}"), "--exact", "--nocapture"])
        .env("LOOPBACK", LOOPBACK)
        .env(INSIDE, if root { "root" } else { "user" })
        .envs(variables)
        .status()
        .expect("unshare runs (Debian: apt-get install util-linux)");
    assert!(status.success(), "{test}: {status} inside of its namespaces; without them it cannot run");
}

/// Whether user ids may be chosen freely inside.
pub(super) fn is_root() -> bool {
    std::env::var(INSIDE).is_ok_and(|value| value == "root")
}

fn has_uid_zero() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}
