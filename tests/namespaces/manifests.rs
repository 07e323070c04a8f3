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

/// The example of a sidecar.
const EXAMPLE: &str = "informerd-example";
/// Where a daemon serves, is probed and is administered.
const SERVED: &str = "http://127.0.0.1:8001";
const PROBES: &str = "http://127.0.0.1:8003";
const ADMIN: &str = "http://127.0.0.1:8002";

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

/// Tests with what is built for them outside, and what they do in namespaces of their own.
macro_rules! in_namespaces {
    ($($test:ident: $built:ident, $run:expr;)*) => {
        $(#[test]
        fn $test() {
            isolated(stringify!($test), $built(), $run());
        })*
    };
}

in_namespaces! {
    a_sidecar_gates_serves_and_ends: built, sidecar::gates_serves_and_ends;
    every_overlay_is_accepted_without_a_warning: built, objects::are_accepted;
    every_choice_of_components_is_accepted_without_a_warning: built, objects::choices_are_accepted;
    a_sidecar_serves_unmodified_programs_through_a_restart_and_ends_after_them: all_built,
        native::serves_through_a_restart_and_ends_last;
    a_pod_that_the_injector_has_changed_serves_unmodified_programs: all_built, injected::serves_unmodified_programs;
    a_sidecar_lives_with_the_memory_of_its_manifest: built, native::lives_with_its_memory;
    a_node_agent_serves_its_node_or_all: all_built, delegated::a_node_agent_serves_its_node;
    each_node_agent_has_a_certificate_for_its_node_alone: built, node::each_has_a_certificate_for_its_node_alone;
    an_audience_of_its_own_is_enough_for_informers: all_built,
        delegated::an_audience_of_its_own_is_enough_for_informers;
    the_tier_serves_unmodified_programs: all_built, delegated::the_tier_serves_unmodified_programs;
    the_first_ten_minutes_of_each_task: built, tasks::is_walked;
    the_commands_for_a_machine_of_ones_own: judge, laptop::is_typed;
}
