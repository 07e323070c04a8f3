//! The output of the decoders depends only on the bytes, not on how they are split into chunks.

use bytes::Bytes;
use proptest::prelude::*;

use crate::codec::{CodecError, INITIAL_EVENTS_END, ListMetaOut, Shape, Slices};
use crate::meta::{EventType, FieldTable};

use super::*;

const STREAM: &str = include_str!("testdata/pod.watch.jsonl");

fn watch(chunks: &[&[u8]], max_frame: usize) -> (Vec<String>, Option<CodecError>, bool) {
    let mut decoder = WatchDecoder::new(max_frame, FieldTable::default());
    let mut frames = Vec::new();
    for chunk in chunks {
        decoder.push(Bytes::copy_from_slice(chunk));
        loop {
            match decoder.next() {
                Ok(Some(frame)) => frames.push(format!("{frame:?}")),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.next().unwrap_err(), error);
                    return (frames, Some(error), false);
                }
            }
        }
    }
    (frames, None, decoder.has_partial())
}

fn list(chunks: &[&[u8]], max_item: usize) -> (Vec<String>, Result<ListMeta, CodecError>) {
    let mut decoder = ListDecoder::new(max_item, FieldTable::default());
    let mut items = Vec::new();
    for chunk in chunks {
        decoder.push(Bytes::copy_from_slice(chunk));
        loop {
            match decoder.next() {
                Ok(Some(item)) => items.push(format!("{item:?}")),
                Ok(None) => break,
                Err(error) => return (items, Err(error)),
            }
        }
    }
    (items, decoder.finish())
}

/// Splits the bytes at these positions.
fn chunks<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
}

#[test]
fn frames_of_other_servers() {
    let meta = r#"{"metadata":{"name":"a","resourceVersion":"5"}}"#;
    // The `object` member comes first. There are extra spaces and members, and no newline.
    let stream = format!(
        "  {{\"object\":{meta},\"x\":[1],\"type\":\"ADDED\"}}{{ \"type\" :\n \"DELETED\", \"object\": {meta}\n}}\r\n\n"
    );
    let (frames, error, partial) = watch(&[stream.as_bytes()], 1024);
    assert_eq!((frames.len(), error, partial), (2, None, false));
    assert!(frames[1].contains("Deleted"));
}

#[test]
fn wrong_frames() {
    let one = |frame: &str| watch(&[frame.as_bytes()], 100).1.unwrap();
    assert_eq!(one("{\"type\":\"PATCHED\",\"object\":{}}\n"), CodecError::UnknownEventType("PATCHED".into()));
    assert_eq!(one("{\"type\":\"ADDED\"}\n"), CodecError::Missing("object"));
    assert_eq!(one("{\"object\":{}}\n"), CodecError::Missing("type"));
    assert!(matches!(one("<html>"), CodecError::Malformed { .. }));
    assert!(matches!(one("{\"type\":\"ERROR\",\"object\":[\"x\"]}\n"), CodecError::NotAStatus(_)));
    assert!(matches!(one("{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\"}}\n"), CodecError::Invalid(_)));
    // The limit applies to complete and incomplete frames, with or without a newline.
    let long = format!("{{\"type\":\"ADDED\",\"object\":{{\"x\":\"{}\"}}}}\n", "x".repeat(100));
    assert_eq!(one(&long), CodecError::TooLarge { limit: 100 });
    assert_eq!(one(&long[..long.len() - 1]), CodecError::TooLarge { limit: 100 });
    assert_eq!(one(&long[..110]), CodecError::TooLarge { limit: 100 });
}

#[test]
fn the_end_of_the_initial_events_may_be_written_with_escapes() {
    for (value, expected) in [(r#""true""#, true), (r#""\u0074rue""#, true), (r#""false""#, false), ("null", false)] {
        let frame = format!(
            r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"5","annotations":{{"{INITIAL_EVENTS_END}":{value}}}}}}}}}"#
        );
        let (frames, error, _) = watch(&[frame.as_bytes()], 1024);
        assert_eq!((frames.len(), error), (1, None));
        assert!(frames[0].contains(&format!("initial_events_end: {expected}")), "{value}");
    }
}

#[test]
fn a_cut_frame_is_seen() {
    assert!(watch(&[&STREAM.as_bytes()[..STREAM.len() - 2]], 1 << 20).2);
    assert!(!watch(&[&STREAM.as_bytes()[..STREAM.len() - 1]], 1 << 20).2);
}

#[test]
fn lists_of_other_servers() {
    let meta = r#"{"metadata":{"name":"a","resourceVersion":"5"}}"#;
    let one = |body: &str| list(&[body.as_bytes()], 200);
    let (items, end) = one(&format!(
        "\n{{ \"metadata\" : {{ \"resourceVersion\" : \"7\", \"remainingItemCount\": 3, \"selfLink\": \"\" }},\n \"items\" : [ {meta} , {meta} ] , \"x\": 1, \"kind\":\"L\", \"apiVersion\":\"v1\" }} \n"
    ));
    assert_eq!(items.len(), 2);
    let end = end.unwrap();
    assert_eq!(
        (end.rv.get(), end.remaining_item_count, &*end.list_kind, end.style),
        (7, Some(3), "L", Style::Stripped)
    );
    let (items, end) = one(r#"{"kind":"L","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":null}"#);
    assert_eq!((items.len(), end.unwrap().style), (0, Style::Stripped));

    let end = |body: &str| one(body).1.unwrap_err();
    assert_eq!(end(""), CodecError::Truncated);
    assert_eq!(end("{\"kind\":\"L\",\"items\":[]"), CodecError::Truncated);
    assert_eq!(
        end("{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"code\":500}"),
        CodecError::Missing("items")
    );
    assert_eq!(
        end("{\"kind\":\"L\",\"apiVersion\":\"v1\",\"metadata\":{},\"items\":[]}"),
        CodecError::Missing("metadata.resourceVersion")
    );
    assert_eq!(end("{\"items\":[],\"items\":[]}"), CodecError::Duplicate("items"));
    for body in [
        "[]",
        "{\"items\":[1]}",
        "{\"items\":1}",
        "{\"items\":[],}",
        "{\"items\":[]}x",
        "{\"items\" []}",
        "{,}",
        "{\"items\":[,]}",
    ] {
        assert!(one(body).1.is_err(), "{body}");
    }
    assert!(one(&format!("{{\"items\":[{meta},]}}")).1.is_err());
    assert_eq!(end(&format!("{{\"items\":[{{\"x\":\"{}", "x".repeat(300))), CodecError::TooLarge { limit: 200 });
}

fn object(index: usize) -> impl Strategy<Value = String> {
    (any::<u32>(), "[\"\\\\{}\\[\\]a\n é]{0,12}", any::<bool>()).prop_map(move |(rv, text, nested)| {
        let text = serde_json::Value::from(text);
        let nested = if nested { "{\"a\":[{}],\"b\":[[\"]\"]]}" } else { "1e3" };
        format!("{{\"metadata\":{{\"name\":\"o{index}\",\"resourceVersion\":\"{rv}\"}},\"x\":{text},\"y\":{nested}}}")
    })
}

fn objects() -> impl Strategy<Value = Vec<String>> {
    (0usize..6).prop_flat_map(|count| (0..count).map(object).collect::<Vec<_>>())
}

fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop_oneof![4 => prop::collection::vec(any::<prop::sample::Index>(), 0..12), 1 => prop::collection::vec(any::<prop::sample::Index>(), 500)]
}

fn damaged(mut bytes: Vec<u8>, damage: Option<(prop::sample::Index, u8)>) -> Vec<u8> {
    if let Some((index, byte)) = damage {
        let at = index.index(bytes.len());
        bytes[at] = *b"\"\\{}[],: x".get(usize::from(byte)).unwrap_or(&byte);
    }
    bytes
}

fn damage() -> impl Strategy<Value = Option<(prop::sample::Index, u8)>> {
    prop::option::weighted(0.5, (any::<prop::sample::Index>(), prop_oneof![0..10u8, any::<u8>()]))
}

proptest! {
    #[test]
    fn watch_frames_do_not_depend_on_chunks(
        objects in objects(),
        separators in prop::collection::vec(prop::sample::select(vec!["\n", "", "\n\n", " \r\n"]), 6),
        cuts in cuts(),
        damage in damage(),
        max_frame in prop_oneof![3 => Just(1 << 20), 1 => 80usize..200],
    ) {
        let mut stream = String::from("\n");
        for (object, separator) in objects.iter().zip(separators) {
            stream += &format!("{{\"type\":\"MODIFIED\",\"object\":{object}}}{separator}");
        }
        let whole = damage.is_none() && max_frame > 1000;
        let stream = damaged(stream.into_bytes(), damage);
        let at_once = watch(&[&stream], max_frame);
        if whole {
            prop_assert_eq!(at_once.0.len(), objects.len());
            prop_assert!(at_once.1.is_none() && !at_once.2);
        }
        prop_assert_eq!(watch(&chunks(&stream, &cuts), max_frame), at_once);
    }

    #[test]
    fn list_items_do_not_depend_on_chunks(
        objects in objects(),
        cuts in cuts(),
        damage in damage(),
        max_item in prop_oneof![3 => Just(1 << 20), 1 => 60usize..150],
    ) {
        let body = format!(
            "{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{{\"resourceVersion\":\"9\",\"continue\":\"c\"}},\"items\":[{}]}}\n",
            objects.join(",")
        );
        let whole = damage.is_none() && max_item > 1000;
        let body = damaged(body.into_bytes(), damage);
        let at_once = list(&[&body], max_item);
        if whole {
            prop_assert_eq!(at_once.0.len(), objects.len());
            prop_assert_eq!(&at_once.1.as_ref().unwrap().continue_token, "c");
        }
        prop_assert_eq!(list(&chunks(&body, &cuts), max_item), at_once);
    }

    #[test]
    fn written_lists_and_frames_decode_to_the_same_items(objects in objects(), cuts in cuts(), inline in any::<bool>(), rv in 1u64..) {
        let form = if inline {
            Form::new(Style::Inline, "g/v1", "W", "WList")
        } else {
            Form::new(Style::Stripped, "v1", "Pod", "PodList")
        };
        let of = |object: &String| {
            let object = if inline { object.replacen('{', "{\"apiVersion\":\"g/v1\",\"kind\":\"W\",", 1) } else { object.clone() };
            parse_item(object.as_bytes(), &FieldTable::default()).unwrap()
        };
        let items: Vec<_> = objects.iter().map(of).collect();
        let meta = ListMetaOut { rv: crate::meta::ResourceVersion(rv), continue_token: Some("t".into()), remaining: Some(2), ..ListMetaOut::default() };
        let mut body = Slices::from(list_head(&form, Shape::Full, &meta, items.is_empty()));
        let mut stream = Slices::new();
        for (index, (object, _)) in items.iter().enumerate() {
            body.append(list_item(&form, object, Shape::Full, index + 1 == items.len()).unwrap());
            stream.append(event_frame(&form, EventType::Added, object, None, Shape::Full).unwrap());
        }
        body.push(list_tail(&form, Shape::Full, &meta, items.is_empty()));

        let (decoded, end) = list(&chunks(&body.into_bytes(), &cuts), 1 << 20);
        prop_assert_eq!(decoded, items.iter().map(|item| format!("{item:?}")).collect::<Vec<_>>());
        let end = end.unwrap();
        prop_assert_eq!((end.rv.get(), &*end.continue_token, end.remaining_item_count), (rv, "t", Some(2)));
        prop_assert_eq!((end.style, end.list_kind, end.api_version), (form.style, form.list_kind.clone(), form.api_version.clone()));

        let mut decoder = WatchDecoder::new(1 << 20, FieldTable::default());
        decoder.push(stream.into_bytes());
        for (item, _) in &items {
            let Some(WatchFrame::Event { object, type_meta, .. }) = decoder.next().unwrap() else { panic!("no event") };
            prop_assert_eq!(format!("{object:?}"), format!("{item:?}"));
            prop_assert_eq!(&type_meta.kind, &form.kind);
        }
        prop_assert!(decoder.next().unwrap().is_none());
    }
}
