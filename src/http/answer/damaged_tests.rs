//! An answer with an object whose bytes do not come back ends with an error, and never looks whole.

use http::{HeaderMap, Uri};
use http_body_util::BodyExt as _;

use super::*;
use crate::cache::WatchStart;
use crate::codec::Shape;
use crate::codec::negotiate::ReadKind;
use crate::http::testing::{World, added_text, list_text, packed};
use crate::meta::{Damaged, Object, errors};
use crate::reads::Outcome;

const OBJECTS: usize = 100;
const SIZE: usize = 2000;

fn bodies() -> Bodies {
    let gzip = 1 << 20;
    Bodies::new(gzip, &Ledger::default(), StallGuards::default(), &Arc::default())
}

pub(super) fn taken(gzip: bool, indent: bool) -> BodyOptions {
    let wanted = WantedFormat::of(&HeaderMap::new(), &Uri::from_static("/"), ReadKind::List).unwrap();
    BodyOptions {
        wanted: WantedFormat { indent, ..wanted },
        gzip,
        short: 1 << 20,
        is_stream: false,
        connection: Arc::new(Connection::new("http://127.0.0.1:0".parse().unwrap(), None)),
        socket: None,
        room: None,
    }
}

/// A world of which one object is damaged.
async fn world(damaged: usize) -> (World, Vec<Arc<Object>>) {
    let objects = packed(OBJECTS, SIZE);
    objects[damaged].spoil();
    (World::new(objects.clone()).await, objects)
}

#[tokio::test]
async fn a_list_is_refused_or_ends_before_the_object() {
    for damaged in [0, 1, 62, 63, 64, OBJECTS - 1] {
        let (world, _) = world(damaged).await;
        for (gzip, indent) in [(false, false), (true, false), (false, true), (true, true)] {
            let what = format!("{damaged}, gzip {gzip}, indented {indent}");
            let mut body = match bodies().list(world.list(), &taken(gzip, indent)).await {
                Err(_) => continue,
                Ok(answered) => answered.response.into_body(),
            };
            assert!(damaged > 60, "{what}: the first objects are written before the head");
            let mut text = Vec::new();
            let end = loop {
                match body.frame().await {
                    Some(Ok(frame)) => text.extend(frame.into_data().unwrap().into_bytes()),
                    end => break end,
                }
            };
            assert!(matches!(end, Some(Err(_))), "{what}: it looks whole after {} bytes", text.len());
            if !gzip && !indent {
                let whole = list_text(OBJECTS, SIZE);
                assert!(text.len() < whole.len() && whole.as_bytes().starts_with(&text), "{what}");
            }
        }
    }
}

#[tokio::test]
async fn a_get_is_refused() {
    let (world, objects) = world(7).await;
    let get = |number: usize| GetAnswer {
        form: world.cache.form().unwrap(),
        shape: Shape::Full,
        object: Arc::clone(&objects[number]),
        served: Served::default(),
        rent: None,
    };
    for shape in [Shape::Full, Shape::PartialObjectMetadata] {
        let answer = GetAnswer { shape, ..get(7) };
        assert!(bodies().object(answer, &taken(false, false)).await.is_err());
        assert!(bodies().object(GetAnswer { shape, ..get(8) }, &taken(false, false)).await.is_ok());
    }
    let refused =
        Outcome::Serve(()).written(|()| std::future::ready(Err::<(), _>(Box::new(errors::damaged(Damaged))))).await;
    let Outcome::Refuse(status) = refused else { panic!("not refused") };
    assert_eq!((status.code, &*status.reason), (500, "InternalError"));
}

#[tokio::test]
async fn a_watch_ends_with_an_error_event() {
    let (world, _) = world(3).await;
    let mut body = world.body(WatchStart::State);
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        text.extend(frame.unwrap().into_data().unwrap().into_bytes());
    }
    let before: String = (0..3).map(|number| added_text(number, SIZE)).collect();
    let text = String::from_utf8(text).unwrap();
    let error = text.strip_prefix(&before).expect("the objects before it");
    let error: serde_json::Value = serde_json::from_str(error).expect("one event, and the end");
    let status = serde_json::to_value(errors::damaged(Damaged)).unwrap_or_default();
    assert_eq!(error["type"], "ERROR", "{error} {status}");
    assert_eq!(error["object"]["code"], 500);
}
