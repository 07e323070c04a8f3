//! Who reads as somebody else: by the same rights as at the apiserver, and as long as all of them last.

use std::path::Path;

use http::Method;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use crate::access::audit::events;
use crate::access::rights::{account, binding, group, path, role, rule};
use crate::access::streams::error;
use crate::access::wire::{codes, cut as raw_cut, direct as direct_raw, raw};
use crate::access::world::World;
use crate::support::{eventually, until};
use crate::world::assert_alike_but_revisions;

/// `wide` may be some, `names` may be one when it lists, by the narrower rights of newer apiservers.
fn rights() -> String {
    const AUTHENTICATION: &str = "authentication.k8s.io";
    let of = |group: &str, resource: &str, names: &[&str], verb: &str| {
        let mut rule = rule(&[resource], names, &[verb]);
        rule["apiGroups"] = json!([group]);
        rule
    };
    let may = |group: &str, resource: &str, names: &[&str]| of(group, resource, names, "impersonate");
    let some = [
        may("", "users", &["reader", "nobody", "system:node:node-x"]),
        may("", "groups", &["crew", "system:serviceaccounts:a"]),
        may(AUTHENTICATION, "userextras/scope", &["x"]),
        may(AUTHENTICATION, "uids", &["7"]),
    ];
    let narrow = [
        of(AUTHENTICATION, "users", &["reader"], "impersonate:user-info"),
        of("", "configmaps", &[], "impersonate-on:user-info:list"),
    ];
    let both = ["wide", "nothing"].map(|name| account("a", name));
    [
        role("", "some", &some),
        binding("", "some", ("ClusterRole", "some"), &both),
        role("a", "accounts", &[may("", "serviceaccounts", &["space"])]),
        binding("a", "accounts", ("Role", "accounts"), &both),
        role("", "narrow", &narrow),
        binding("", "narrow", ("ClusterRole", "narrow"), &[account("a", "names")]),
        binding("b", "crew", ("ClusterRole", "wide"), &[group("crew")]),
        binding("b", "nodes", ("ClusterRole", "wide"), &[group("system:nodes")]),
    ]
    .concat()
}

async fn prepared(world: &World) {
    world.cluster.apply(&rights()).await;
    world.settled().await;
    world.warm(&["/api/v1/configmaps"]).await;
    // The last of the rights has come to where they are asked for.
    let wide = world.token("wide", &[]).await;
    let crew = [("impersonate-user", "nobody"), ("impersonate-group", "crew")];
    let target = "/api/v1/namespaces/b/configmaps?resourceVersion=0";
    let direct = world.direct(Some(&wide));
    until("it is allowed", async || direct.request(Method::GET, target, &crew, "").await.status == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_whom_they_may_not_be() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("audit.log");
    let world = World::start(&format!(
        "authentication: {{anonymous: forward}}\nconsistentReads: cache\naudit: {{log: {}}}\n",
        log.display()
    ))
    .await;
    prepared(&world).await;
    the_log_names_both(&world, &log).await;
    everybody_reads_what_others_may(&world).await;
    headers_of_every_kind(&world).await;
    random_heads(&world).await;
}

async fn everybody_reads_what_others_may(world: &World) {
    let mut callers = vec![("anonymous", None)];
    for token in ["admin-token", "reader-token", "nobody-token", "wrong-token"] {
        callers.push((token, Some(token.to_owned())));
    }
    for account in ["wide", "nothing", "names"] {
        callers.push((account, Some(world.token(account, &[]).await)));
    }
    let users = [
        "reader",
        "nobody",
        "admin",
        "",
        "system:serviceaccount:a:space",
        "system:serviceaccount:a:wide",
        "system:serviceaccount:a",
        "system:node:node-x",
        "system:anonymous",
    ];
    let more: &[&[(&str, &str)]] = &[
        &[],
        &[("impersonate-group", "crew")],
        &[("impersonate-group", "system:masters")],
        &[("impersonate-group", "system:serviceaccounts:a"), ("impersonate-uid", "7")],
        &[("impersonate-extra-scope", "x")],
        &[("impersonate-extra-scope", "y"), ("impersonate-uid", "8"), ("impersonate-group", "")],
    ];
    let targets = [
        "/api/v1/configmaps?resourceVersion=0",
        "/api/v1/namespaces/b/configmaps?resourceVersion=0",
        "/api/v1/namespaces/a/configmaps/one?resourceVersion=0",
    ];
    let (mut allowed, before) = (0, world.served());
    for (caller, token) in &callers {
        let (direct, through) = (world.direct(token.as_deref()), world.through(token.as_deref()));
        for user in users {
            for more in more {
                let headers = [&[("impersonate-user", user)][..], more].concat();
                for target in targets {
                    let before = world.served();
                    let ours = through.request(Method::GET, target, &headers, "").await;
                    let theirs = direct.request(Method::GET, target, &headers, "").await;
                    let what = format!("{target} of {caller} as {headers:?}");
                    assert_alike_but_revisions(&what, &theirs, &ours);
                    assert!(world.served() == before || theirs.status == 200, "{what}");
                    allowed += u64::from(theirs.status == 200);
                }
            }
        }
    }
    let served = world.served() - before;
    eprintln!("{allowed} impersonated reads were allowed, {served} of them served here");
    assert!(served * 2 > allowed, "{served} of {allowed}");
    // What the narrower rights allow is the apiserver's to say.
    let names = callers.iter().find(|(caller, _)| *caller == "names").unwrap().1.as_deref();
    let reader = [("impersonate-user", "reader")];
    let before = world.served();
    assert_eq!(world.through(names).request(Method::GET, targets[0], &reader, "").await.status, 200);
    assert_eq!(world.through(names).request(Method::GET, targets[2], &reader, "").await.status, 403);
    // And nobody asks where clients are trusted.
    assert_eq!(world.trusting().request(Method::GET, targets[0], &reader, "").await.status, 200);
    assert_eq!(world.served(), before);
}

async fn the_log_names_both(world: &World, log: &Path) {
    let wide = world.token("wide", &[]).await;
    let target = "/api/v1/namespaces/a/configmaps?resourceVersion=0";
    let told = || events(log).filter(|event| !event["impersonatedUser"].is_null()).collect::<Vec<_>>();
    for (user, code) in [("reader", 200), ("nobody", 403)] {
        let headers = [("impersonate-user", user)];
        assert_eq!(world.through(Some(&wide)).request(Method::GET, target, &headers, "").await.status, code);
    }
    eventually("both are told", || told().len() == 2).await;
    for (event, (user, code)) in told().iter().zip([("reader", 200), ("nobody", 403)]) {
        assert_eq!(event["user"]["username"], "system:serviceaccount:a:wide");
        assert_eq!(event["impersonatedUser"], json!({"username": user, "groups": ["system:authenticated"]}));
        assert_eq!(event["responseStatus"]["code"], code);
    }
}

/// What the answer to a list has.
const LIST: &str = "ConfigMapList";

/// Both sides answer these bytes with the same code. Returns whether they show the list.
async fn is_shown_alike(world: &World, head: &str) -> bool {
    let (ours, theirs) = (raw(world, head).await, direct_raw(world, head).await);
    let told = |answer: &str| (codes(answer).join(" "), answer.contains(LIST));
    assert_eq!(told(&ours), told(&theirs), "{head}\n{ours}\n{theirs}");
    ours.contains(LIST)
}

/// However it is written, the apiserver would have allowed what is answered here, to the same user.
async fn headers_of_every_kind(world: &World) {
    let wide = world.token("wide", &[]).await;
    let many = "Impersonate-Group: crew\r\n".repeat(40);
    for lines in [
        "Impersonate-User: reader\r\n",
        "impersonate-user:reader\r\n",
        "IMPERSONATE-USER:   reader  \r\n",
        "Impersonate-User: reader\r\nImpersonate-User: admin\r\n",
        "Impersonate-User: admin\r\nImpersonate-User: reader\r\n",
        "Impersonate-User: nobody\r\nImpersonate-User: reader\r\n",
        "Impersonate-User:\r\nImpersonate-User: reader\r\n",
        "Impersonate-User: reader\r\nImpersonate-User:\r\n",
        "Impersonate-User:\r\n",
        "Impersonate_User: nobody\r\n",
        "Impersonate-User : nobody\r\n",
        "Impersonate-Users: nobody\r\n",
        "Impersonate-User: reader,admin\r\n",
        "Impersonate-User: nobody\tx\r\n",
        "Impersonate-User: n%6fbody\r\n",
        "Impersonate-User: \u{fffd}\r\n",
        "Impersonate-User: Reader\r\n",
        "Impersonate-Group: system:masters\r\n",
        "Impersonate-User: nobody\r\nImpersonate-Group: crew\r\nImpersonate-Group: system:masters\r\n",
        "Impersonate-User: nobody\r\nImpersonate-Group: crew, system:masters\r\n",
        "Impersonate-User: nobody\r\nImpersonate-Group:\r\nImpersonate-Group: crew\r\n",
        "Impersonate-User: nobody\r\nImpersonate-Uid: 7\r\nImpersonate-Uid: 8\r\n",
        "Impersonate-User: nobody\r\nImpersonate-Uid: 8\r\nImpersonate-Uid: 7\r\n",
        "Impersonate-User: nobody\r\nImpersonate-Extra-: x\r\n",
        "Impersonate-User: reader\r\nImpersonate-Extra-SCOPE: x\r\n",
        "Impersonate-User: reader\r\nImpersonate-Extra-s%63ope: x\r\n",
        "Impersonate-User: reader\r\nImpersonate-Extra-s%63ope: y\r\nImpersonate-Extra-scope: x\r\n",
        "Impersonate-User: reader\r\nImpersonate-Extra-%53cope: x\r\n",
        "Impersonate-User: reader\r\nImpersonate-Extra-scope%: x\r\n",
        "Impersonate-User: reader\r\nImpersonate-Extra-scope%2F..: x\r\n",
        "Impersonate-User: reader\r\nX-Remote-User: admin\r\nX-Remote-Group: system:masters\r\n",
        "Impersonate-User: reader\r\nConnection: impersonate-user, close\r\n",
        "Connection: impersonate-user, close\r\nImpersonate-User: nobody\r\n",
        "Impersonate-User: system:serviceaccount:a:space\r\n",
        "Impersonate-User: system:serviceaccount:a:SPACE\r\n",
        "Impersonate-User: system:serviceaccount:a:space:x\r\n",
        "Impersonate-User: system:serviceaccount::space\r\n",
        "Impersonate-User: system:node:\r\n",
        &format!("Impersonate-User: nobody\r\n{many}"),
    ] {
        let close = if lines.contains("Connection") { "" } else { "Connection: close\r\n" };
        for (token, namespace) in [(wide.as_str(), "b"), ("admin-token", "a")] {
            let request = format!(
                "GET /api/v1/namespaces/{namespace}/configmaps?resourceVersion=0 HTTP/1.1\r\nHost: localhost\r\n\
                 Authorization: Bearer {token}\r\n{lines}{close}\r\n"
            );
            is_shown_alike(world, &request).await;
        }
    }
}

/// Headers of who asks and as whom, in any order, doubled and left out; and heads that are cut.
async fn random_heads(world: &World) {
    let (wide, nothing) = (world.token("wide", &[]).await, world.token("nothing", &[]).await);
    let (wide, nothing) = (format!("Bearer {wide}"), format!("Bearer {nothing}"));
    let mut random = rand::rngs::StdRng::seed_from_u64(crate::seed(20_263));
    let (mut allowed, before) = (0, world.served());
    for _ in 0..250 {
        let mut lines = vec!["Host: localhost".to_owned()];
        for (usual, most, name, values) in [
            (1, 2, "Authorization", &[&*wide, &wide, &nothing, &nothing, "Bearer x", ""][..]),
            (1, 2, "Impersonate-User", &["reader", "reader", "nobody", "admin", ""]),
            (0, 3, "Impersonate-Group", &["crew", "crew", "system:serviceaccounts:a", "system:masters", ""]),
            (0, 2, "Impersonate-Uid", &["7", "7", "8", ""]),
            (0, 2, "Impersonate-Extra-Scope", &["x", "x", "y"]),
        ] {
            let count = if random.random_bool(0.6) { usual } else { random.random_range(0..=most) };
            lines.extend((0..count).map(|_| format!("{name}: {}", values.choose(&mut random).unwrap())));
        }
        lines.shuffle(&mut random);
        let namespace = if random.random_bool(0.5) { "a" } else { "b" };
        let target = format!("/api/v1/namespaces/{namespace}/configmaps?resourceVersion=0");
        let head = format!("GET {target} HTTP/1.1\r\n{}\r\nConnection: close\r\n\r\n", lines.join("\r\n"));
        allowed += u64::from(is_shown_alike(world, &head).await);
        if random.random_bool(0.2) {
            let cut = random.random_range(1..head.len());
            let answer = raw_cut(world, &head.as_bytes()[..cut]).await;
            assert!(!answer.contains(LIST), "{cut} of\n{head}\n{answer}");
        }
    }
    let served = world.served() - before;
    assert!((15..125).contains(&allowed) && served * 4 > allowed, "{allowed}, {served} of them served here");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_with_either_right() {
    let world = World::start("").await;
    prepared(&world).await;
    let token = world.token("nothing", &[]).await;
    let through = world.through(Some(&token));
    let target = "/api/v1/namespaces/b/configmaps?watch=1&resourceVersion=0";
    let crew = [("impersonate-user", "nobody"), ("impersonate-group", "crew")];
    let table = [("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")];
    let open = async |more: &[(&'static str, &'static str)]| {
        let headers = [&crew[..], more].concat();
        until("it is allowed", async || through.watch_as(target, &headers).await.status == 200).await;
        let mut watch = through.watch_as(target, &headers).await;
        assert_eq!(watch.next().await.unwrap().unwrap()["type"], "ADDED");
        watch
    };
    for path in [path("rolebindings", "b", "crew"), path("rolebindings", "", "some"), path("roles", "", "some")] {
        let before = world.served();
        let (mut served, mut forwarded) = (open(&[]).await, open(&table).await);
        assert!(world.served() > before);
        world.delete(&path).await;
        for watch in [&mut served, &mut forwarded] {
            let status = error(watch).await;
            assert_eq!(status["code"], 403, "{path}: {status}");
        }
        assert_eq!(through.watch_as(target, &crew).await.status, 403, "{path}");
        world.cluster.apply(&rights()).await;
    }
    let mut watch = open(&[]).await;
    world.delete("/api/v1/namespaces/a/serviceaccounts/nothing").await;
    assert_eq!(error(&mut watch).await["code"], 401, "the caller is no more");
    // Where only the apiserver can tell, a watch ends as any does, and is to be begun anew.
    let (admin, odd) = (world.through(Some("admin-token")), [("impersonate-extra-%41", "x")]);
    let headers = [&crew[..], &odd].concat();
    let mut watch = admin.watch_as(target, &headers).await;
    assert_eq!(watch.next().await.unwrap().unwrap()["type"], "ADDED");
    world.delete(&path("rolebindings", "b", "crew")).await;
    while let Some(event) = watch.next().await.unwrap() {
        assert_ne!(event["type"], "ERROR", "{event}");
    }
    assert_eq!(admin.watch_as(target, &headers).await.status, 403);
}
