//! What an operator installs: the image's program, run with nothing beside it, and the manifests, applied to a real
//! kube-apiserver and run as the kubelet would, with exactly their arguments, environment, files and identity.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod authority;
mod delegated;
mod image;
mod injected;
mod isolated;
mod laptop;
mod limits;
mod native;
mod node;
mod objects;
mod pod;
mod programs;
mod sidecar;
mod tasks;

use isolated::isolated;

/// What is built or fetched, for inside of the namespaces, where there is no network; programs in all languages included.
async fn all_built() -> Vec<(&'static str, String)> {
    for language in programs::LANGUAGES {
        crate::process::prepared(language).await;
    }
    built().await
}

/// What is built or fetched, for inside of the namespaces, where there is no network.
async fn built() -> Vec<(&'static str, String)> {
    let mut built = judge().await;
    built.push((image::VARIABLE, image::binary().await.display().to_string()));
    built
}

/// The same without the image's program.
async fn judge() -> Vec<(&'static str, String)> {
    vec![("INFORMERD_JUDGE", crate::process::judge().await.display().to_string())]
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
fn every_choice_of_components_is_accepted_without_a_warning() {
    isolated("every_choice_of_components_is_accepted_without_a_warning", built(), objects::choices_are_accepted());
}

#[test]
fn a_sidecar_serves_unmodified_programs_through_a_restart_and_ends_after_them() {
    let test = "a_sidecar_serves_unmodified_programs_through_a_restart_and_ends_after_them";
    isolated(test, all_built(), native::serves_through_a_restart_and_ends_last());
}

#[test]
fn a_pod_that_the_injector_has_changed_serves_unmodified_programs() {
    let test = "a_pod_that_the_injector_has_changed_serves_unmodified_programs";
    isolated(test, all_built(), injected::serves_unmodified_programs());
}

#[test]
fn a_sidecar_lives_with_the_memory_of_its_manifest() {
    isolated("a_sidecar_lives_with_the_memory_of_its_manifest", built(), native::lives_with_its_memory());
}

#[test]
fn a_node_agent_serves_its_node_or_all() {
    isolated("a_node_agent_serves_its_node_or_all", all_built(), delegated::a_node_agent_serves_its_node());
}

#[test]
fn each_node_agent_has_a_certificate_for_its_node_alone() {
    let test = "each_node_agent_has_a_certificate_for_its_node_alone";
    isolated(test, built(), node::each_has_a_certificate_for_its_node_alone());
}

#[test]
fn an_audience_of_its_own_is_enough_for_informers() {
    let test = "an_audience_of_its_own_is_enough_for_informers";
    isolated(test, all_built(), delegated::an_audience_of_its_own_is_enough_for_informers());
}

#[test]
fn the_tier_serves_unmodified_programs() {
    isolated("the_tier_serves_unmodified_programs", all_built(), delegated::the_tier_serves_unmodified_programs());
}

#[test]
fn the_first_ten_minutes_of_each_task() {
    isolated("the_first_ten_minutes_of_each_task", built(), tasks::is_walked());
}

#[test]
fn the_commands_for_a_machine_of_ones_own() {
    isolated("the_commands_for_a_machine_of_ones_own", judge(), laptop::is_typed());
}

#[test]
fn requests_and_limits_follow_from_measurements() {
    limits::follow_from_measurements();
}

#[tokio::test]
async fn the_image_names_no_path_of_its_build_and_its_recipe_is_clean() {
    image::names_no_path_of_its_build().await;
    image::recipe_is_clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_a_ca_and_rotate_it_under_their_clients() {
    authority::replicas_share_and_rotate().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ca_that_is_given_up_is_replaced_at_once() {
    authority::is_replaced_at_once().await;
}
