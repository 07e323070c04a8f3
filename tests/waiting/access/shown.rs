//! The table of clients, where it is known who they are.

use http_body_util::BodyExt;
use informerd::app::admin_side::AdminSide;

use crate::access::typed;
use crate::access::world::World;
use crate::support::grpc::{all, list_of, watch_of};
use crate::support::within;

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_the_typed_api_are_shown_with_their_user() {
    let world = World::warmed("", &["/api/v1/configmaps"]).await;
    let client = world.through(Some("reader-token"));
    let request = watch_of(all("configmaps"));
    let headers = [("user-agent", "grpc-go/1.80.0")];
    let mut watch = typed::send_as(&client, "Objects/Watch", &headers, &request).await.into_body();
    within("the watch begins", watch.frame()).await.unwrap().unwrap();
    let status = world.daemon.admin().json("/status.json").await;
    let rows = status["clients"].as_array().unwrap();
    let row = rows.iter().find(|row| row["program"] == "grpc-go/1.80.0").unwrap_or_else(|| panic!("{status}"));
    for (key, expected) in [("protocol", "gRPC"), ("user", "reader"), ("address", "127.0.0.1")] {
        assert_eq!(row[key], expected, "{row}");
    }
    assert_eq!((&row["watches"], &row["requests"], &status["watches"]), (&1.into(), &1.into(), &1.into()), "{row}");
    assert!(row["bytes"].as_u64().unwrap() > 20, "{row}");
    // In the terminal, too.
    let shown = informerd_status::ask(&AdminSide(world.daemon.daemon.admin)).await.unwrap();
    let shown = shown.render(informerd_status::Style::PLAIN);
    let line = shown.lines().find(|line| line.contains("grpc-go/1.80.0")).expect("a row");
    assert!(line.split_whitespace().take(4).eq(["127.0.0.1", "reader", "grpc-go/1.80.0", "gRPC"]), "{line}");
    // A list of the same program is another request of the same client.
    let list = list_of(all("configmaps"));
    assert_eq!(typed::status_as(&client, "Objects/List", &headers, &list).await.0, "0");
    drop(watch);
    let row = || {
        let all = world.daemon.daemon.http.clients.list();
        all.into_iter().find(|client| client.program == "grpc-go/1.80.0").unwrap()
    };
    crate::support::eventually("the watch has ended", || row().watches == 0).await;
    assert_eq!(row().requests, 2);
}
