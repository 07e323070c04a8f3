//! Pages of lists, from a cache that the test feeds.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::apiserver::client::Upstream;
use crate::apiserver::discovery::{ApiResource, Discovery};
use crate::cache::{Order, WatchCache, Writer};
use crate::codec::json::{self, Style};
use crate::codec::{Form, Shape};
use crate::informer::Factory;
use crate::meta::{Encoding, FieldTable, Gvr, ListOptions, Object, Resource, Scope};
use crate::reads::{ConsistentReads, ReadsConfig};

const HOUR: Duration = Duration::from_secs(3600);

fn object(number: usize) -> Arc<Object> {
    let members = format!(r#""name":"n{number:04}","namespace":"a","uid":"u{number}","resourceVersion":"1""#);
    let item = format!(r#"{{"metadata":{{{members}}}}}"#);
    Arc::new(json::parse_item(item.as_bytes(), &FieldTable::default()).unwrap().0)
}

/// Reads of so many objects, which the cache has at revision 10. No apiserver answers.
async fn reads(objects: usize) -> (Reads, Writer) {
    let upstream = Upstream::from_config(kube::Config::new("http://127.0.0.1:1".parse().unwrap())).await.unwrap();
    let discovery = Discovery::knowing(upstream.clone(), vec![ApiResource::core("configmaps", "ConfigMap")]);
    let factory = Factory::simple(HOUR, upstream, discovery);
    let mut writer = factory.put(Resource::simple("", "configmaps", "ConfigMap"));
    writer.set_form(Form::new(Encoding::Json, Style::Stripped, "v1", "ConfigMap", "ConfigMapList"));
    writer.replace((0..objects).map(object).collect(), ResourceVersion(10)).await.unwrap();
    (Reads::new(ReadsConfig::simple(ConsistentReads::Cache, HOUR), factory).for_trusted(), writer)
}

/// A page for a client that cannot be forwarded.
async fn page(reads: &Reads, limit: i64, continue_token: Option<String>) -> ListAnswer {
    let options = ListOptions { limit, continue_token: continue_token.unwrap_or_default(), ..ListOptions::default() };
    let request = ReadRequest { local: true, ..ReadRequest::simple(Gvr::new("", "v1", "configmaps"), None, options) };
    match reads.list(&request).await {
        Outcome::Serve(answer) => answer,
        other => panic!("{other:?}"),
    }
}

/// The names of its objects, taken so many at once.
fn taken(answer: &mut ListAnswer, max: usize) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let mut found = Vec::new();
        let more = answer.items.next(max, &mut found);
        assert!(found.len() <= max);
        names.extend(found.iter().map(|object| object.key.name().to_owned()));
        if !more {
            return names;
        }
    }
}

#[tokio::test]
async fn pages_go_on_at_a_revision_that_was_confirmed_a_minute_ago() {
    let (reads, writer) = reads(3).await;
    let confirm =
        |cache: &WatchCache, rv| assert!(cache.confirm(&cache.snapshot().unwrap(), ResourceVersion(rv), Order::now()));
    let cache = writer.cache();
    confirm(&cache, 20);
    let mut first = page(&reads, 2, None).await;
    assert_eq!((first.meta.rv, taken(&mut first, 9).len()), (ResourceVersion(20), 2));
    // 60 in a second.
    (21..=3620).for_each(|rv| confirm(&cache, rv));
    let mut second = page(&reads, 2, first.meta.continue_token).await;
    assert_eq!((second.meta.rv, taken(&mut second, 9)), (ResourceVersion(20), vec!["n0002".to_owned()]));
}

#[tokio::test]
async fn pages_make_up_the_whole_and_hold_no_objects() {
    let (reads, writer) = reads(7).await;
    let snapshot = writer.cache().snapshot().unwrap();
    let all: Vec<_> = snapshot.range(&Scope::default(), None).cloned().collect();
    let held = || all.iter().map(Arc::strong_count).collect::<Vec<_>>();
    let protobuf = Form::new(Encoding::Protobuf, Style::Stripped, "v1", "ConfigMap", "ConfigMapList");
    let len = all[0].framed_len() as u64;
    let (before, whole) = (held(), taken(&mut page(&reads, 0, None).await, 100));
    assert_eq!(whole.len(), 7);
    for (limit, max) in [1, 2, 3, 6, 7, 8, 1_000_000].into_iter().flat_map(|limit| [(limit, 1), (limit, 2), (limit, 9)])
    {
        let (mut walked, mut token) = (Vec::new(), None);
        loop {
            let mut answer = page(&reads, limit, token).await;
            assert_eq!(held(), before, "they are found while they are written");
            let measured = answer.items.measure(&protobuf, Shape::Full).await.unwrap();
            let names = taken(&mut answer, max);
            assert_eq!(measured, names.len() as u64 * len);
            assert!(names.len() as i64 <= limit);
            walked.extend(names);
            assert_eq!(answer.meta.remaining.unwrap_or_default(), 7 - walked.len() as i64);
            token = answer.meta.continue_token;
            if token.is_none() {
                break;
            }
        }
        assert_eq!(walked, whole, "{limit}, {max} at once");
    }
}
