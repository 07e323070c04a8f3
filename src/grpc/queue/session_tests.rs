//! A queue with an object whose bytes are damaged.

use tokio::time::timeout;

use super::super::super::access::{self, Verb};
use super::super::super::convert;
use super::super::super::watch::tests::{caller, objects_of};
use super::super::request::{Join, Wanted};
use super::super::{Groups, QueueConfig};
use super::*;
use crate::codec::json;
use crate::lifecycle::drain::DrainWatch;
use crate::meta::FieldTable;
use crate::packing::{MOST_READS, Packing, PackingConfig, PackingForm};

const OBJECTS: usize = 200;

fn object(number: usize) -> std::sync::Arc<crate::meta::Object> {
    let item = format!(
        r#"{{"metadata":{{"name":"c{number}","namespace":"a","uid":"u{number}","resourceVersion":"{}"}},"data":{{"k":"{}"}}}}"#,
        number + 1,
        "x".repeat(1000)
    );
    std::sync::Arc::new(json::parse_item(item.as_bytes(), &FieldTable::default()).unwrap().0)
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_damaged_is_tried_again_and_the_others_go_on() {
    let list: Vec<_> = (0..OBJECTS).map(object).collect();
    let packing = PackingConfig { form: PackingForm::Packed, threshold: 0, hot_bytes: 0 };
    let packer = Packing::new(packing).packer(None);
    packer.train(&list.iter().map(|object| object.raw().unwrap().framed()).collect::<Vec<_>>(), 1 << 20);
    list[3].pack(&packer, MOST_READS);
    list[3].spoil();
    let (objects, _writer) = objects_of(list).await;
    let ledger = Ledger::default();
    let resource = v1::Resource { version: "v1".into(), resource: "configmaps".into(), ..Default::default() };
    let sent = v1::Selection { resource: Some(resource), ..Default::default() };
    let (mut selection, rendering, held) = convert::selection(Some(&sent), &ledger).unwrap();
    let grants = access::authorize(&caller(), Verb::Watch, &mut selection).await.unwrap();
    let wanted = vec![Wanted::new(&sent, selection, rendering)];
    let join = Join { group: "g".into(), owner: String::new(), wanted, capacity: 2 * OBJECTS, held: vec![held] };
    let config = QueueConfig { linger: Duration::from_secs(60), max_groups: 2, max_deletions: 10 };
    let groups = Groups::new(config, objects.reads.clone(), DrainWatch::never());
    let mut session = Session {
        member: groups.join(join).await.unwrap(),
        right: grants.open(),
        shown: HashMap::new(),
        retiring: Retiring(DrainWatch::never()),
        ledger: ledger.clone(),
        _place: ledger.lasting(PLACE).unwrap(),
    };
    let mut sent = 0;
    while sent < OBJECTS - 1 || session.member.group.queue.stats().retries < 3 {
        let handed = timeout(Duration::from_secs(600), session.member.worker.next()).await.expect("a key").unwrap();
        if let Some(Frame::Items(items)) = session.items(handed).unwrap().frame {
            sent += items.items.len();
        }
    }
    assert_eq!(sent, OBJECTS - 1);
}
