//! Which encoding a request is answered in, and that its revisions go forward in all of them.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_setting_decides() {
    let yaml = "resources: [{resource: configmaps, protobuf: json}, {resource: pods, protobuf: forward}]\n";
    let world = world(yaml).await;
    for (collection, accept, media, served) in [
        ("/api/v1/configmaps", GO, "application/json", 1),
        ("/api/v1/configmaps", PROTOBUF, PROTOBUF, 0),
        ("/api/v1/pods", GO, PROTOBUF, 0),
        ("/api/v1/pods", "application/json", "application/json", 1),
        ("/api/v1/services", GO, PROTOBUF, 1),
    ] {
        let before = world.served();
        let answer = world.get(&format!("{collection}?resourceVersion=0"), accept).await;
        assert_eq!(answer.headers["content-type"], media, "{collection} {accept}");
        assert_eq!(world.served() - before, served, "{collection} {accept}");
    }
    let informers = world.informers();
    assert_eq!((informers["configmaps"], informers["pods"], informers["services"]), ((1, 0), (1, 0), (0, 1)));
}

/// What one encoding has shown, the other does not go behind.
#[tokio::test(flavor = "multi_thread")]
async fn revisions_never_go_back_from_one_encoding_to_the_other() {
    let world = world("consistentReads: cache\n").await;
    let collection = "/api/v1/namespaces/a/configmaps";
    world.write(Method::POST, collection, &json!({"metadata": {"name": "one"}})).await;
    world.settled(collection).await;
    world.through.json(&format!("{collection}?resourceVersion=0")).await;
    assert_eq!(world.informers()["configmaps"], (1, 1));
    let path = format!("{collection}?watch=1&resourceVersion=0");
    let mut json = world.through.watch(&path).await;
    let mut protobuf = world.through.watch_as(&path, &[("accept", PROTOBUF)]).await;
    let initial = rv(&json.next().await.unwrap().unwrap()["object"]);
    assert!(initial > 0);
    let rv_of = |frame: &[u8]| {
        let mut decoder = WatchDecoder::new(Encoding::Protobuf, 16 << 20, FieldTable::default());
        decoder.push(frame.to_vec().into());
        match decoder.next().unwrap() {
            Some(WatchFrame::Event { object, .. }) => object.rv.get(),
            other => panic!("{other:?}"),
        }
    };
    for n in 0..40 {
        // Written past informerd: it knows of it only what its watches tell.
        let name = json!({"metadata": {"name": format!("w-{n}")}});
        let written = rv(&world.write(Method::POST, collection, &name).await);
        let object = format!("{collection}/w-{n}?resourceVersion=0");
        if n % 2 == 0 {
            while rv(&json.next().await.unwrap().unwrap()["object"]) < written {}
            let list = world.get(&format!("{collection}?resourceVersion=0"), PROTOBUF).await;
            assert!(list_meta(&list).rv.get() >= written, "{n}");
            assert_eq!(world.get(&object, PROTOBUF).await.status, 200, "{n}");
        } else {
            while rv_of(&protobuf.next_frame().await.unwrap().unwrap()) < written {}
            let list = world.through.json(&format!("{collection}?resourceVersion=0")).await;
            assert!(rv(&list) >= written, "{n}");
            assert_eq!(world.through.get(&object).await.status, 200, "{n}");
        }
    }
    // Own writes are read in both.
    for n in 0..10 {
        let body = format!(r#"{{"metadata":{{"name":"own-{n}"}}}}"#);
        let headers = [("content-type", "application/json")];
        let created = world.through.request(Method::POST, collection, &headers, &body).await;
        assert_eq!(created.status, 201, "{}", created.text());
        for accept in [PROTOBUF, "application/json"] {
            assert_eq!(world.get(&format!("{collection}/own-{n}"), accept).await.status, 200, "{n} {accept}");
        }
    }
}
