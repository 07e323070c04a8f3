//! The Helm chart, by real helm (see tests/clients/prepare): it renders what the kustomize overlays render, a real
//! kube-apiserver takes all of it, and wrong values are refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod equal;
mod helm;
mod installed;
mod objects;
mod refused;
mod values;

use helm::Helm;

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_renders_what_the_overlays_render() {
    equal::to_the_overlays(&Helm::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_apiserver_takes_every_mode_with_every_option() {
    installed::is_accepted(&Helm::new()).await;
}

#[test]
fn every_value_has_an_effect() {
    values::have_an_effect(&Helm::new());
}

#[test]
fn values_become_configuration_and_rights() {
    let helm = Helm::new();
    values::become_configuration_and_rights(&helm);
    values::names_are_texts(&helm);
}

#[test]
fn wrong_values_are_refused() {
    refused::are_wrong_values(&Helm::new());
}

#[test]
fn the_chart_is_clean_and_names_no_registry() {
    refused::nothing_in_the_chart(&Helm::new());
}
