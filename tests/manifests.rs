//! What an operator installs: the image's program, run with nothing beside it, and the manifests, applied to a real
//! kube-apiserver and run as the kubelet would, with exactly their arguments, environment, files and identity.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "manifests/authority.rs"]
mod authority;
#[path = "judge/cluster.rs"]
mod cluster;
#[path = "manifests/delegated.rs"]
mod delegated;
#[path = "manifests/image.rs"]
mod image;
#[path = "manifests/isolated.rs"]
mod isolated;
#[path = "manifests/objects.rs"]
mod objects;
#[path = "manifests/pod.rs"]
mod pod;
#[path = "judge/process.rs"]
mod process;
#[path = "manifests/sidecar.rs"]
mod sidecar;
mod support;

use isolated::isolated;

/// What is built or fetched, for inside of the namespaces, where there is no network.
async fn built() -> Vec<(&'static str, String)> {
    let (judge, image) = (process::judge().await.display().to_string(), image::binary().await.display().to_string());
    vec![("INFORMERD_JUDGE", judge), (image::VARIABLE, image)]
}

#[test]
fn a_sidecar_gates_serves_and_ends() {
    isolated("a_sidecar_gates_serves_and_ends", built(), sidecar::gates_serves_and_ends());
}

#[test]
fn every_overlay_is_accepted_without_a_warning() {
    isolated("every_overlay_is_accepted_without_a_warning", built(), objects::are_accepted());
}

#[test]
fn components_fit_into_a_kustomization() {
    isolated("components_fit_into_a_kustomization", built(), objects::components_render());
}

#[test]
fn a_node_agent_serves_its_node() {
    isolated("a_node_agent_serves_its_node", built(), delegated::a_node_agent_serves_its_node());
}

#[test]
fn the_tier_serves_unmodified_programs() {
    let before = async {
        for client in ["go", "python", "node"] {
            delegated::prepared(client).await;
        }
        built().await
    };
    isolated("the_tier_serves_unmodified_programs", before, delegated::the_tier_serves_unmodified_programs());
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_a_ca_and_rotate_it_under_their_clients() {
    authority::replicas_share_and_rotate().await;
}
