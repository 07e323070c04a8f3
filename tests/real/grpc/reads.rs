//! Lists. `real` and `waiting::access::unions` have the selections, the shapes and the errors.

use informerd::grpc::pb::v1;
use prost::Message;
use serde_json::json;

use super::fixtures::{all, config_map, keys, list_of, simulated};
use crate::support::within;

#[tokio::test(flavor = "multi_thread")]
async fn lists_come_in_chunks_of_one_state() {
    let objects = std::array::from_fn(|n| {
        let mut object = config_map("a", &format!("n{n:02}"));
        object["data"] = json!({ "x": "y".repeat(100_000) });
        object
    });
    let (server, _through, mut client) = simulated::<40>(objects, "").await;
    let mut stream = client.list(list_of(all("configmaps"))).await.unwrap().into_inner();
    let header = within("the next part of the list", stream.message()).await.unwrap().unwrap();
    // What comes later is of no state before it.
    server.create(config_map("a", "late")).unwrap();
    let (mut chunks, mut names) = (0, Vec::new());
    while let Some(message) = within("the next part of the list", stream.message()).await.unwrap() {
        assert!(message.encoded_len() <= 1 << 20, "{}", message.encoded_len());
        let Some(v1::list_response::Part::Chunk(chunk)) = message.part else { panic!() };
        names.extend(keys(&chunk.objects));
        chunks += 1;
    }
    assert_eq!((chunks, names.len()), (4, 40));
    assert!(names.is_sorted());
    let Some(v1::list_response::Part::Header(header)) = header.part else { panic!() };
    assert!(!header.resume_token.is_empty() && header.resource_version.parse::<u64>().unwrap() > 0);
}
