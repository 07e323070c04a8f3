//! Unions of filters over gRPC, by users with random rights: what is allowed is what the apiserver allows for each part
//! alone, and a stream ends exactly when a right goes that one of its parts needs.

use std::collections::{BTreeSet, HashMap};

use informerd::grpc::pb::v1;
use informerd::grpc::pb::v1::watch_response::Frame;
use informerd::lifecycle::spawn;
use rand::seq::{IndexedRandom as _, IteratorRandom as _};
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinHandle;

use crate::access::typed::{PERMISSION_DENIED, begun, message, send, status, status_as, trailers};
use crate::access::world::World;
use crate::support::client::Client;
use crate::support::grpc::{add, filtered};
use crate::support::{eventually, until, within};

/// Namespace (empty: all) and name (empty: all) of each right to ConfigMaps.
const RIGHTS: [(&str, &str); 8] =
    [("", ""), ("a", ""), ("b", ""), ("a", "one"), ("b", "one"), ("", "one"), ("a", ""), ("b", "")];
/// The last two rights are to list alone and to watch alone.
const VERBS: [&str; 8] = [BOTH, BOTH, BOTH, BOTH, BOTH, BOTH, "list", "watch"];
const BOTH: &str = "list, watch";
const USERS: usize = 10;

/// One part of a union: all in a namespace or everywhere, or one name of it, of which selectors leave some.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Part {
    namespace: &'static str,
    name: &'static str,
    labels: &'static str,
    fields: &'static str,
}

/// A user, and the rights that it has: indexes of `RIGHTS`.
struct User {
    rights: BTreeSet<usize>,
    direct: Client,
    through: Client,
    token: String,
}

impl Part {
    /// 200 or 403.
    async fn answer(&self, client: &Client, watch: bool) -> u16 {
        let target = self.target(watch);
        let status = if watch { client.watch(&target).await.status } else { client.get(&target).await.status };
        assert!(status == 200 || status == 403, "{target}: {status}");
        status.as_u16()
    }

    fn target(&self, watch: bool) -> String {
        let scope = if self.namespace.is_empty() { String::new() } else { format!("namespaces/{}/", self.namespace) };
        let name = if self.name.is_empty() { String::new() } else { format!("metadata.name={},", self.name) };
        let watch = if watch { "watch=1&" } else { "" };
        let fields = format!("{name}{}", self.fields);
        let [labels, fields] = [self.labels, fields.trim_end_matches(',')].map(|text| text.replace('=', "%3D"));
        format!("/api/v1/{scope}configmaps?{watch}resourceVersion=0&labelSelector={labels}&fieldSelector={fields}")
    }
}

fn role(at: usize) -> String {
    let ((namespace, name), verbs) = (RIGHTS[at], VERBS[at]);
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    let place = if namespace.is_empty() { String::new() } else { format!(", namespace: {namespace}") };
    let names = if name.is_empty() { String::new() } else { format!(", resourceNames: [{name}]") };
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata: {{name: union-{at}{place}}}\n\
         rules: [{{apiGroups: [''], resources: [configmaps], verbs: [{verbs}]{names}}}]\n---\n"
    )
}

fn binding(at: usize, users: &[BTreeSet<usize>]) -> String {
    let namespace = RIGHTS[at].0;
    let (kind, place) = match namespace {
        "" => ("ClusterRole", String::new()),
        _ => ("Role", format!(", namespace: {namespace}")),
    };
    let holders = users.iter().enumerate().filter(|(_, rights)| rights.contains(&at));
    let subjects: Vec<_> =
        holders.map(|(user, _)| format!("{{kind: ServiceAccount, name: union-{user}, namespace: a}}")).collect();
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}Binding\nmetadata: {{name: union-{at}{place}}}\n\
         roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {kind}, name: union-{at}}}\nsubjects: [{}]\n---\n",
        subjects.join(", ")
    )
}

/// Parts with several names become one filter with these names.
fn selection(filters: &[Vec<Part>]) -> Option<v1::Selection> {
    let filter = |parts: &Vec<Part>| v1::Filter {
        namespace: parts[0].namespace.to_owned(),
        names: parts.iter().map(|part| part.name.to_owned()).filter(|name| !name.is_empty()).collect(),
        label_selector: parts[0].labels.to_owned(),
        field_selector: parts[0].fields.to_owned(),
        ..Default::default()
    };
    Some(filtered("configmaps", filters.iter().map(filter).collect()))
}

/// Most filters are within one of the rights.
fn union(rng: &mut rand::rngs::StdRng, rights: &BTreeSet<usize>) -> Vec<Vec<Part>> {
    let filter = |rng: &mut rand::rngs::StdRng| {
        let mut namespace = *["", "a", "b"].choose(rng).unwrap();
        let mut names = [&[""][..], &[""], &["one"], &["two"], &["one", "two"]].choose(rng).unwrap().to_vec();
        let (of, name) = RIGHTS[*rights.iter().choose(rng).unwrap()];
        if rng.random_bool(0.7) {
            (namespace, names) = (of, if name.is_empty() { names } else { vec![name] });
        }
        let labels = *["", "", "app=x"].choose(rng).unwrap();
        // Of two names in one selector, the apiserver asks for the first in order.
        let same = if names.contains(&"two") { "" } else { "metadata.name=one" };
        let fields = *["", same, "metadata.name!=one", "metadata.namespace=a"].choose(rng).unwrap();
        names.into_iter().map(|name| Part { namespace, name, labels, fields }).collect()
    };
    (0..rng.random_range(1..=6)).map(|_| filter(rng)).collect()
}

fn watch(filters: &[Vec<Part>]) -> v1::WatchRequest {
    v1::WatchRequest { selection: selection(filters), ..Default::default() }
}

/// How the first watch of a stream of many begins.
async fn synced(client: &Client, filters: &[Vec<Part>]) -> String {
    let credit = Some(v1::Credit { frames: 100, bytes: 1 << 30 });
    let mut body = send(client, "Sync", &add(1, watch(filters), credit)).await.into_body();
    let first: v1::SyncResponse = message(&mut body, &mut Vec::new()).await;
    match first.response.unwrap().frame {
        Some(Frame::Goodbye(goodbye)) => goodbye.error.unwrap().code.to_string(),
        _ => "0".to_owned(),
    }
}

async fn worked(world: &World, token: &str, filters: &[Vec<Part>]) -> String {
    let joined = super::streams::work(world, token, "union", selection(filters));
    match within("an answer to Work", joined).await {
        Ok(_) => "0".to_owned(),
        Err(status) => (status.code() as i32).to_string(),
    }
}

/// What the apiserver says of one part alone.
struct Judge<'a> {
    user: &'a User,
    said: HashMap<(Part, bool), bool>,
}

impl Judge<'_> {
    async fn allows(&mut self, filters: &[Vec<Part>], watch: bool) -> bool {
        let mut all = true;
        for part in filters.iter().flatten() {
            let key = (part.clone(), watch);
            let said = match self.said.get(&key) {
                Some(said) => *said,
                None => {
                    let said = part.answer(&self.user.direct, watch).await == 200;
                    self.said.insert(key, said);
                    said
                }
            };
            all &= said;
        }
        all
    }
}

async fn users(world: &World, rng: &mut rand::rngs::StdRng) -> Vec<User> {
    // Each right alone, and some of them together.
    let mut rights: Vec<BTreeSet<usize>> = [1, 2, 3, 6, 7].map(|at| [at].into()).into();
    while rights.len() < USERS {
        rights.push((0..RIGHTS.len()).choose_multiple(rng, 2 + rights.len() % 3).into_iter().collect());
    }
    let account = |user: usize| {
        format!("apiVersion: v1\nkind: ServiceAccount\nmetadata: {{name: union-{user}, namespace: a}}\n---\n")
    };
    let mut manifests: String = (0..USERS).map(account).collect();
    (0..RIGHTS.len()).for_each(|at| manifests += &(role(at) + &binding(at, &rights)));
    world.cluster.apply(&manifests).await;
    let mut users = Vec::new();
    for (user, rights) in rights.into_iter().enumerate() {
        let token = world.token(&format!("union-{user}"), &[]).await;
        let (direct, through) = (world.direct(Some(&token)), world.through(Some(&token)));
        users.push(User { rights, direct, through, token });
    }
    // The last right has come to the apiserver's authorizer, and here.
    for user in &users {
        for at in &user.rights {
            for client in [&user.direct, &user.through] {
                until("it is allowed", async || whole(*at).answer(client, VERBS[*at] == "watch").await == 200).await;
            }
        }
    }
    users
}

#[tokio::test(flavor = "multi_thread")]
async fn a_union_is_allowed_as_its_parts_are_alone() {
    let world = World::warmed("", &["/api/v1/configmaps"]).await;
    let mut rng = rand::rngs::StdRng::seed_from_u64(crate::seed(20_261));
    let users = users(&world, &mut rng).await;
    let (mut allowed, mut denied) = (0, 0);
    let mut streams: Vec<(usize, Vec<Vec<Part>>, JoinHandle<String>)> = Vec::new();
    for (at, user) in users.iter().enumerate() {
        let mut judge = Judge { user, said: HashMap::new() };
        for _ in 0..16 {
            let filters = union(&mut rng, &user.rights);
            let as_reader = [("impersonate-user", "reader")];
            assert_eq!(status_as(&user.through, "Objects/Watch", &as_reader, &watch(&filters)).await.0, "14");
            for (call, is_watch) in [("List", false), ("Watch", true), ("Sync", true), ("Work", true)] {
                let wanted = if judge.allows(&filters, is_watch).await { "0" } else { PERMISSION_DENIED };
                let code = match call {
                    "List" => {
                        let list = v1::ListRequest { selection: selection(&filters), ..Default::default() };
                        status(&user.through, call, &list).await.0
                    }
                    "Watch" => begun(&user.through, call, &watch(&filters)).await,
                    "Sync" => synced(&user.through, &filters).await,
                    _ => worked(&world, &user.token, &filters).await,
                };
                assert_eq!(code, wanted, "{call} by {:?}: {filters:?}", user.rights);
                *(if wanted == "0" { &mut allowed } else { &mut denied }) += 1;
            }
            for part in filters.iter().flatten() {
                for is_watch in [false, true] {
                    let wanted = if judge.allows(&[vec![part.clone()]], is_watch).await { 200 } else { 403 };
                    let answer = part.answer(&user.through, is_watch).await;
                    assert_eq!(answer, wanted, "{:?}: {part:?}", user.rights);
                }
            }
            if judge.allows(&filters, true).await {
                let mut stream = send(&user.through, "Watch", &watch(&filters)).await.into_body();
                let end = async move { trailers(&mut stream).await["grpc-status"].to_str().unwrap().to_owned() };
                streams.push((at, filters, spawn("stream", end)));
            }
        }
    }
    assert!(allowed > 100 && denied > 100 && streams.len() > 20, "{allowed} allowed, {denied} denied");

    // The rights go one after another. Each time exactly those streams end that needed it.
    for (at, right) in RIGHTS.iter().enumerate() {
        let namespace = right.0;
        let path = match namespace {
            "" => format!("clusterrolebindings/union-{at}"),
            _ => format!("namespaces/{namespace}/rolebindings/union-{at}"),
        };
        world.delete(&format!("/apis/rbac.authorization.k8s.io/v1/{path}")).await;
        let (mut gone, mut stay) = (Vec::new(), Vec::new());
        let mut judges: Vec<_> = users.iter().map(|user| Judge { user, said: HashMap::new() }).collect();
        settled(&users, at).await;
        for (user, filters, end) in streams.drain(..) {
            match judges[user].allows(&filters, true).await {
                true => stay.push((user, filters, end)),
                false => gone.push((user, filters, end)),
            }
        }
        for (user, filters, end) in gone {
            let code = within(&format!("{user} ends: {filters:?}"), end).await.unwrap();
            assert_eq!(code, PERMISSION_DENIED, "{user}: {filters:?}");
        }
        let live = || world.daemon.daemon.access.metrics().watches_live.get();
        eventually("rights are watched", || live() == 4).await;
        for (user, filters, end) in &stay {
            assert!(!end.is_finished(), "{user} ended: {filters:?}");
        }
        streams = stay;
    }
    assert!(streams.is_empty(), "without any right nothing stays");
}

/// Waits until the apiserver's authorizer knows that the right to watch is gone.
async fn settled(users: &[User], gone: usize) {
    let kept = |user: &User| VERBS[gone] == "list" || user.rights.range(gone + 1..).any(|at| covers(*at, gone));
    for user in users.iter().filter(|user| user.rights.contains(&gone) && !kept(user)) {
        until("the right is gone", async || whole(gone).answer(&user.direct, true).await == 403).await;
    }
}

/// All that a right allows.
fn whole(right: usize) -> Part {
    let (namespace, name) = RIGHTS[right];
    Part { namespace, name, labels: "", fields: "" }
}

/// Whether a right includes all watches that another one allows.
fn covers(wide: usize, narrow: usize) -> bool {
    let ((namespace, name), (of, named)) = (RIGHTS[wide], RIGHTS[narrow]);
    VERBS[wide] != "list" && (namespace.is_empty() || namespace == of) && (name.is_empty() || name == named)
}
