use http_body_util::{BodyExt, StreamBody};
use prost::Message;
use tokio::sync::mpsc::Sender;
use tonic::Code;

use super::*;
use crate::auth::{Client, Payer, UserInfo};
use crate::grpc::metrics::GrpcMetrics;
use crate::grpc::pb::v1;
use crate::grpc::testing::caller;
use crate::lifecycle::drain::{self, Drain};
use crate::memory::{Level, Pressure};

const WATCH: &str = "/informerd.v1.Objects/Watch";
const GET: &str = "/informerd.v1.Objects/Get";
const MIB: usize = 1 << 20;

/// A call of this client.
fn paid_by(client: Client, metrics: &Arc<GrpcMetrics>) -> Option<Caller> {
    let caller = caller();
    caller.pays(client, metrics).unwrap();
    Some(caller)
}

fn user(name: &str) -> Client {
    Client::User(Payer::of(&UserInfo { username: name.to_owned(), ..UserInfo::default() }))
}

fn framed(packed: u8, message: &[u8]) -> Vec<u8> {
    [&[packed][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
}

/// A request body that arrives in frames of this size.
fn body(sent: &[u8], frame: usize) -> Body {
    let frames: Vec<_> = sent.chunks(frame).map(|part| Ok::<_, Status>(Frame::data(part.to_vec().into()))).collect();
    Body::new(StreamBody::new(tokio_stream::iter(frames)))
}

/// A request body that is sent frame by frame.
fn sent() -> (Sender<Result<Frame<Bytes>, Status>>, Body) {
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    (sender, Body::new(StreamBody::new(tokio_stream::wrappers::ReceiverStream::new(receiver))))
}

fn opening() -> (Drain, Drain, Opening) {
    let ((drain, drained), (age, retired)) = (drain::channel(), drain::channel());
    (drain, age, Opening { drain: drained.signal(), retired: retired.signal(), silent: Counter::default() })
}

fn count(intake: &Intake, body: Body) -> Body {
    intake.count(body, opening().2)
}

#[test]
fn requests_of_one_client_take_their_share_and_those_of_others_go_on() {
    let (ledger, metrics) = (Ledger::new(16 * MIB, Pressure::default()), Arc::default());
    let open = |client: Client| -> Vec<_> {
        let next = || Intake::new(&ledger, paid_by(client.clone(), &metrics), SYNC, true);
        std::iter::from_fn(|| next().ok()).take(1000).collect()
    };
    assert_eq!(open(Client::Connection(1)).len(), 768, "who is trusted takes all that is there for requests");
    assert_eq!(metrics.overflows.get(), 0);
    let first = open(user("a"));
    assert_eq!((first.len(), ledger.used()), (384, 6 * MIB), "three eighths");
    assert_eq!(metrics.overflows.get(), 1);
    let second = open(user("b"));
    assert_eq!((second.len(), ledger.used()), (256, 10 * MIB), "five eighths together");
    assert_eq!(open(Client::Address([10, 0, 0, 1].into())).len(), 65, "who has little goes on");
    drop((first, second));
    let again = open(user("b")).len();
    assert_eq!((again, ledger.used()), (384, 0));
}

#[test]
fn a_share_counts_what_is_reserved() {
    let ledger = Ledger::new(16 * MIB, Pressure::default());
    let caller = paid_by(user("a"), &Arc::default());
    // A message of a method that is not in the API counts as its bytes.
    let intake = Intake::new(&ledger, caller.clone(), "/other", false).unwrap();
    intake.decode(&vec![0; MIB]).unwrap();
    let apart = intake.of_message(&ledger).unwrap();
    assert_eq!(ledger.used(), MIB + PLACE);
    let rest = ledger.reserve(10 * MIB).unwrap();
    assert!(intake.decode(&vec![0; 2 * MIB]).is_err(), "there is no memory");
    drop(rest);
    assert!(intake.decode(&vec![0; 5 * MIB + 1]).is_err(), "six mebibytes are its share");
    assert_eq!(ledger.used(), MIB + PLACE);
    intake.decode(&vec![0; 5 * MIB]).unwrap();
    assert_eq!(ledger.used(), 6 * MIB);
    intake.hand_over();
    drop(apart);
    // What a watch keeps counts for as long as it is kept.
    let kept = ledger.lasting(6 * MIB - PLACE).unwrap();
    let caller = caller.unwrap();
    caller.charge(&kept).unwrap();
    assert!(intake.decode(&vec![0; PLACE + 1]).is_err());
    drop(kept);
    intake.decode(&vec![0; 6 * MIB]).unwrap();
    drop(intake);
    assert_eq!(ledger.used(), 0);
}

#[tokio::test]
async fn a_body_comes_through_one_message_at_a_time() {
    let sent: Vec<u8> = [0, 1, 300, 0, 5000].iter().flat_map(|&length| framed(0, &vec![b'x'; length])).collect();
    for frame in [1, 3, 5, 6, 100, 1 << 20] {
        let ledger = Ledger::new(MIB, Pressure::default());
        let intake = Intake::new(&ledger, None, SYNC, false).unwrap();
        let mut counted = count(&intake, body(&sent, frame));
        let (mut seen, mut most) = (Vec::new(), 0);
        while let Some(part) = counted.frame().await {
            let part = part.unwrap().into_data().unwrap();
            most = most.max(part.len());
            seen.extend_from_slice(&part);
        }
        assert!(seen == sent && most <= 5005, "{frame}");
        assert_eq!(ledger.used(), 5005, "the largest message");
        drop(counted);
        assert_eq!(ledger.used(), PLACE);
        drop(intake);
        assert_eq!(ledger.used(), 0);
    }
}

#[tokio::test]
async fn what_is_not_there_yet_is_not_counted_and_what_is_there_is() {
    let ledger = Ledger::new(4 * MIB, Pressure::default());
    let whole = framed(0, &vec![b'x'; 4 * MIB]);
    let [first, second] = [(); 2].map(|()| Intake::new(&ledger, None, SYNC, false).unwrap());
    let mut begun = count(&first, body(&whole[..5], 5));
    begun.frame().await.unwrap().unwrap();
    assert_eq!(ledger.used(), 2 * PLACE);
    let mut counted = count(&second, body(&whole, 64 << 10));
    let status = loop {
        match counted.frame().await.unwrap() {
            Ok(_) => assert!(ledger.used() <= 3 * MIB),
            Err(status) => break status,
        }
    };
    assert_eq!((status.code(), ledger.refused()), (Code::ResourceExhausted, 1));
    assert!(ledger.used() > 2 * MIB && counted.frame().await.is_none());
}

#[tokio::test]
async fn each_method_takes_what_it_needs() {
    let ledger = Ledger::default();
    for (method, taken) in [(GET, 256 << 10), (SYNC, 4 * MIB), ("/informerd.v1.Cache/ListInformers", 4 << 10)] {
        for (length, is_taken) in [(taken, true), (taken + 1, false)] {
            let intake = Intake::new(&ledger, None, method, false).unwrap();
            let counted = count(&intake, body(&framed(0, &vec![b'x'; length]), MIB)).collect().await;
            assert_eq!(counted.map_err(|status| status.code()).err(), (!is_taken).then_some(Code::InvalidArgument));
        }
    }
}

#[tokio::test]
async fn a_packed_message_counts_as_what_it_may_be() {
    let ledger = Ledger::new(16 * MIB, Pressure::default());
    let intake = Intake::new(&ledger, None, SYNC, true).unwrap();
    // An open stream can continue: 16 KiB are reserved for it.
    let mut counted = count(&intake, body(&[framed(1, &[0; 32]), framed(1, &[0; 1000])].concat(), MIB));
    counted.frame().await.unwrap().unwrap();
    assert_eq!(ledger.used(), PACKED_PLACE);
    counted.frame().await.unwrap().unwrap();
    assert_eq!(ledger.used(), 1005 + 982 * GZIP_MOST);
}

#[tokio::test]
async fn a_packed_message_counts_as_what_it_has_become_once_it_is_unpacked() {
    let ledger = Ledger::new(16 * MIB, Pressure::default());
    let intake = Intake::new(&ledger, None, SYNC, true).unwrap();
    let sent = [5000, 1000, 500, 1000].map(|length| framed(1, &vec![0; length])).concat();
    let mut counted = count(&intake, body(&sent, MIB));
    // The library keeps the buffers of the largest message. Those of a small one have room in the place of the stream.
    for (becomes, used) in [(10_000, PACKED_PLACE), (20_000, 25_005), (500, 25_005), (30_000, 35_005)] {
        counted.frame().await.unwrap().unwrap();
        assert!(ledger.used() > 400_000, "{}", ledger.used());
        intake.decode(&vec![0; becomes]).unwrap();
        assert_eq!(ledger.used(), used, "{becomes}");
    }
    drop(counted);
    assert_eq!(ledger.used(), PACKED_PLACE);
}

#[tokio::test]
async fn what_a_message_becomes_is_counted_before_it_is_made() {
    let ledger = Ledger::new(16 * MIB, Pressure::default());
    let intake = Intake::new(&ledger, None, "/informerd.v1.Objects/List", false).unwrap();
    let list = |filters: usize| {
        let selection = v1::Selection { filters: vec![v1::Filter::default(); filters], ..Default::default() };
        v1::ListRequest { selection: Some(selection), ..Default::default() }.encode_to_vec()
    };
    intake.decode(&list(1000)).unwrap();
    assert!(ledger.used() > 200_000);
    assert!(intake.decode(&list(100_000)).is_err(), "200 kB that become 30 MB");
    intake.decode(&list(1)).unwrap();
    assert_eq!(ledger.used(), PLACE);
}

#[tokio::test]
async fn a_message_that_stays_is_counted_besides_the_next_one() {
    let ledger = Ledger::new(8 * MIB, Pressure::default());
    let intake = Intake::new(&ledger, None, SYNC, false).unwrap();
    let known = (0..10_000).map(|n| (format!("{n:036}"), format!("{n:07}"))).collect();
    let watch = Some(v1::WatchRequest { known, ..Default::default() });
    let add = v1::sync_request::Action::Add(v1::AddWatch { watch, credit: None });
    let add = v1::SyncRequest { watch_id: 1, action: Some(add) }.encode_to_vec();
    let stay = || intake.decode(&add).and_then(|()| intake.of_message(&ledger));
    let mut staying: Vec<_> = std::iter::from_fn(|| stay().ok()).collect();
    let each = ledger.used() / staying.len();
    assert!((2..=4).contains(&staying.len()) && each > 1_500_000, "{} of {each}", staying.len());
    intake.hand_over();
    assert!(ledger.used() <= 6 * MIB, "what does not fit is not counted");
    staying[0].clone().during(async { Intake::current().unwrap().hand_over() }).await;
    assert!(stay().is_ok(), "there is room for another one");
    staying.clear();
    assert_eq!(ledger.used(), PLACE);
}

#[tokio::test]
async fn a_stream_goes_on_while_memory_is_short() {
    let ledger = Ledger::new(16 * MIB, Pressure::default());
    let intake = Intake::new(&ledger, None, SYNC, false).unwrap();
    ledger.pressure().set(Level::Short);
    let credit = |bytes: usize| framed(0, &vec![b'x'; bytes]);
    let mut counted = count(&intake, body(&[credit(20).repeat(1000), credit(20_000)].concat(), MIB));
    for _ in 0..1000 {
        counted.frame().await.unwrap().unwrap();
    }
    assert_eq!(counted.frame().await.unwrap().unwrap_err().code(), Code::ResourceExhausted);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_go_on_gives_its_room_back() {
    let ledger = Ledger::new(MIB, Pressure::default());
    let intake = Intake::new(&ledger, None, SYNC, false).unwrap();
    let (sender, body) = sent();
    let mut counted = count(&intake, body);
    let sent = framed(0, &[b'x'; 100_000]);
    sender.send(Ok(Frame::data(sent.clone().into()))).await.unwrap();
    counted.frame().await.unwrap().unwrap();
    // Between two messages there is no timeout.
    assert!(tokio::time::timeout(10 * PATIENCE, counted.frame()).await.is_err());
    sender.send(Ok(Frame::data(sent[..50_000].to_vec().into()))).await.unwrap();
    counted.frame().await.unwrap().unwrap();
    assert!(tokio::time::timeout(PATIENCE / 2, counted.frame()).await.is_err());
    let status = tokio::time::timeout(PATIENCE, counted.frame()).await.unwrap().unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    drop(counted);
    assert_eq!(ledger.used(), PLACE);
}

/// What the first message of a call is waited for, for each method.
#[tokio::test(start_paused = true)]
async fn a_call_does_not_wait_for_ever_for_its_first_message() {
    let ledger = Ledger::default();
    let code = |next: Option<Result<Frame<Bytes>, Status>>| next.unwrap().unwrap_err().code();
    for method in [WATCH, WORK, GET, SYNC] {
        let intake = Intake::new(&ledger, None, method, false).unwrap();
        let body = || Body::new(StreamBody::new(tokio_stream::pending::<Result<Frame<Bytes>, Status>>()));
        let (_drain, _age, first) = opening();
        let silent = first.silent.clone();
        let mut late = intake.count(body(), first);
        let ended = tokio::time::timeout(2 * PATIENCE, late.frame()).await;
        assert_eq!((ended.ok().map(code), silent.get()), (Some(Code::DeadlineExceeded), 1), "{method}");
        for is_age in [false, true] {
            let (drain, age, opening) = opening();
            let mut waits = intake.count(body(), opening);
            assert!(tokio::time::timeout(PATIENCE / 2, waits.frame()).await.is_err());
            if is_age {
                age.start(PATIENCE);
            } else {
                drain.start(PATIENCE);
            }
            let ended = tokio::time::timeout(PATIENCE / 4, waits.frame()).await;
            assert_eq!(ended.ok().map(code), (method != SYNC).then_some(Code::Unavailable), "{method}");
        }
        // What a stream sends after its first message is its own affair; a call with one request must end it.
        let (sender, whole) = sent();
        let mut begun = count(&intake, whole);
        sender.send(Ok(Frame::data(framed(0, b"x").into()))).await.unwrap();
        while let Ok(part) = tokio::time::timeout(PATIENCE / 2, begun.frame()).await {
            part.unwrap().unwrap();
        }
        let ended = tokio::time::timeout(2 * PATIENCE, begun.frame()).await;
        let goes_on = method == SYNC || method == WORK;
        assert_eq!(ended.ok().map(code), (!goes_on).then_some(Code::DeadlineExceeded), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_but_the_whole_first_message_ends_the_wait_for_it() {
    let ledger = Ledger::default();
    let whole = framed(0, &[b'x'; 100]);
    for method in [WATCH, WORK, GET, SYNC] {
        // Empty frames, or a byte each.
        for size in [0, 1] {
            let intake = Intake::new(&ledger, None, method, false).unwrap();
            let (sender, body) = sent();
            let mut slow = count(&intake, body);
            let mut ended = None;
            for at in 0..10 {
                sender.send(Ok(Frame::data(Bytes::copy_from_slice(&whole[at..at + size])))).await.unwrap();
                let error = async {
                    loop {
                        if let Err(status) = slow.frame().await.unwrap() {
                            break status.code();
                        }
                    }
                };
                ended = tokio::time::timeout(PATIENCE / 4, error).await.ok();
                if ended.is_some() {
                    break;
                }
            }
            assert_eq!(ended, Some(Code::DeadlineExceeded), "{method}");
        }
    }
}
