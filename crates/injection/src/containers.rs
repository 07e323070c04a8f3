//! The containers of a pod.

use serde_json::Value;

/// The lists of a pod that have containers.
pub(super) const LISTS: [&str; 2] = ["initContainers", "containers"];

/// All containers, with the list that each is in and its index there.
pub(super) fn containers(pod: &Value) -> impl Iterator<Item = (&'static str, usize, &Value)> {
    LISTS.into_iter().flat_map(move |list| {
        let found = pod["spec"][list].as_array().into_iter().flatten().enumerate();
        found.map(move |(index, container)| (list, index, container))
    })
}
