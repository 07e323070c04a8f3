//! A queue with an object whose bytes are damaged.

use tokio::time::timeout;

use super::super::super::call::{Verb, access};
use super::super::super::messages::convert;
use super::super::super::testing::{caller, objects_of, selection};
use super::super::request::{Join, Wanted};
use super::super::{Groups, QueueConfig};
use super::*;
use crate::http::testing::packed;
use crate::lifecycle::drain::DrainWatch;

const OBJECTS: usize = 200;

#[tokio::test(start_paused = true)]
async fn an_object_that_is_damaged_is_tried_again_and_the_others_go_on() {
    let list = packed(OBJECTS, 1000);
    list[3].spoil();
    let (objects, _writer) = objects_of(list).await;
    let ledger = Ledger::default();
    let sent = selection("configmaps", vec![]);
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
