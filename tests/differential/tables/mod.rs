//! Tables of every resource there is, cell by cell, ages included: both sides are asked until they have answered within
//! the same second.

mod objects;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::sleep;

use super::compare::{Difference, compare};
use super::report::{Report, at_once};
use super::wire::{Answer, Ask};
use super::world::{BOUND, World};

const V1: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
const V1BETA1: &str = "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

/// Attempts to be answered within one second. The two answers are some milliseconds apart.
const ATTEMPTS: usize = 20;
const AT_ONCE: usize = 32;

/// Names the version of Kubernetes that the tests are written for.
const PINNED: &str = include_str!("../../cluster/go.mod");

/// A resource that can be listed and watched.
struct Listed {
    root: String,
    plural: String,
    namespaced: bool,
}

/// Of all resources, or of one.
pub(crate) async fn run(world: &Arc<World>, only: Option<&str>, report: &Arc<Report>) {
    let listed = match set_up(world, report).await {
        Ok(listed) => listed,
        Err(error) => return report.wrong("tables: setting up", &format!("  {error}\n")),
    };
    let listed = listed.into_iter().filter(|listed| only.is_none_or(|only| only == listed.plural)).map(|listed| {
        let (world, report) = (Arc::clone(world), Arc::clone(report));
        async move {
            if let Err(error) = listed.compare(&world, &report).await {
                report.wrong(&format!("tables of {}", listed.plural), &format!("  {error}\n"));
            }
        }
    });
    at_once("tables", AT_ONCE, listed, report).await;
}

/// Makes the objects; returns every resource that the apiserver lists and watches.
async fn set_up(world: &World, report: &Report) -> Result<Vec<Listed>, String> {
    world.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &objects::timers()).await?;
    world.until_served("/apis/differential.example.com/v1/timers").await?;
    world.until_served("/apis/differential.example.com/v2/timers").await?;
    let mut listed = Vec::new();
    for root in ["/api", "/apis"] {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let document = world.direct_json(&Ask::get(root).header("Accept", accept)).await?;
        for group in array(&document["items"]) {
            let name = group["metadata"]["name"].as_str().map_or(String::new(), |name| format!("/{name}"));
            for version in array(&group["versions"]) {
                let root = format!("{root}{name}/{}", text(&version["version"]));
                listed.extend(array(&version["resources"]).iter().filter_map(|resource| Listed::of(&root, resource)));
            }
        }
    }
    let version = world.direct_json(&Ask::get("/version")).await?;
    let is_pinned = PINNED.contains(&format!("k8s.io/kubernetes {}\n", text(&version["gitVersion"])));
    for (collection, object) in objects::all() {
        // Another version may not serve a resource yet, or accept less of it.
        match world.create(collection, &object).await {
            Err(error) if is_pinned => return Err(error),
            Err(error) => report.leave_out("tables of an object that this version refuses", &error),
            Ok(()) => {}
        }
    }
    Ok(listed)
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

// === impl Listed ===

impl Listed {
    fn of(root: &str, resource: &Value) -> Option<Self> {
        let verbs = array(&resource["verbs"]);
        let plural = text(&resource["resource"]).to_owned();
        // Nothing of them is ever kept.
        let kept = plural != "secrets" && ["list", "watch"].iter().all(|verb| verbs.iter().any(|given| given == verb));
        kept.then(|| Self { root: root.to_owned(), plural, namespaced: resource["scope"] == "Namespaced" })
    }

    async fn compare(&self, world: &World, report: &Report) -> Result<(), String> {
        let all = format!("{}/{}", self.root, self.plural);
        // Repeated use starts an informer.
        for _ in 0..3 {
            let ask = Ask::get(format!("{all}?resourceVersion=0")).header("Accept", V1);
            world.pair[1].ask(&ask, BOUND).await.map_err(|error| error.to_string())?;
        }
        let exact = format!("resourceVersion={}&resourceVersionMatch=Exact", world.newest().await?);
        let mut targets = Vec::new();
        for include in ["", "&includeObject=None", "&includeObject=Object", "&includeObject=Metadata", "&limit=1"] {
            targets.push((format!("{all}?{exact}{include}"), V1));
        }
        for (selector, include) in [("labelSelector=app%3Dx", ""), ("fieldSelector=metadata.name%3Dnone", "&limit=500")]
        {
            targets.push((format!("{all}?{exact}&{selector}{include}"), V1));
        }
        targets.push((format!("{all}?{exact}&includeObject=Object"), V1BETA1));
        targets.push((format!("{all}?{exact}"), V1BETA1));
        targets.push((format!("{all}?{exact}&includeObject=wrong"), V1));
        if self.namespaced {
            targets.push((format!("{}/namespaces/diff-a/{}?{exact}&limit=500", self.root, self.plural), V1));
        }
        let objects = world.direct_json(&Ask::get(format!("{all}?{exact}"))).await?;
        for metadata in array(&objects["items"]).iter().map(|object| &object["metadata"]).take(8) {
            let place = metadata["namespace"].as_str().map_or(String::new(), |place| format!("/namespaces/{place}"));
            let one = format!("{}{place}/{}/{}", self.root, self.plural, text(&metadata["name"]));
            targets.push((format!("{one}?resourceVersion=0"), V1));
            targets.push((format!("{one}?includeObject=Object"), V1BETA1));
        }
        targets.push((format!("{all}?watch=1&resourceVersion=0&timeoutSeconds=1"), V1));
        for (target, accept) in targets {
            one(world, &Ask::get(target).header("Accept", accept), report).await;
        }
        Ok(())
    }
}

async fn one(world: &World, ask: &Ask, report: &Report) {
    let what = format!("tables ({})", ask.target);
    let asks = [ask.clone(), ask.clone()];
    for attempt in 1..=ATTEMPTS {
        let [Ok(direct), Ok(through)] = world.ask(&asks, BOUND).await else {
            return report.wrong(&what, "  no answer\n");
        };
        let mut found = compare(ask, &direct, &through, world.still);
        if found.is_empty() {
            found.extend(ages(&direct, &through));
        }
        // One that is a second older on one side is so for some milliseconds.
        let within_a_second = matches!(*found, [Difference::Ages { .. }]);
        if !within_a_second || attempt == ATTEMPTS {
            return report.outcome(&what, &world.pair, &asks, &[direct, through], &found);
        }
        sleep(Duration::from_millis(70)).await;
    }
}

/// What is left out of the comparison elsewhere.
fn ages(direct: &Answer, through: &Answer) -> Option<Difference> {
    let at = direct.body.iter().zip(&through.body).position(|(a, b)| a != b);
    let at = at.or_else(|| (direct.body.len() != through.body.len()).then_some(0))?;
    Some(Difference::Ages { at })
}
