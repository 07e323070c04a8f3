use tokio::io::duplex;
use tokio::sync::oneshot;

use super::*;
use crate::lifecycle::spawn;

const ONE: &[u8] = b"\x81\x05hello";

#[tokio::test(start_paused = true)]
async fn both_ways_until_it_is_over() {
    let ((mut client, its_end), (mut server, servers_end)) = (duplex(64), duplex(64));
    let (say, over) = oneshot::channel::<()>();
    let piping = spawn(
        "pipe",
        pipe_until(its_end, servers_end, async move {
            over.await.ok();
            Some(Bytes::from_static(b"no\n"))
        }),
    );
    let mut seen = [0; 7];
    client.write_all(b"\x89\x80mask").await.unwrap();
    server.read_exact(&mut seen[..6]).await.unwrap();
    server.write_all(ONE).await.unwrap();
    client.read_exact(&mut seen).await.unwrap();
    assert_eq!(seen, *ONE);
    // Within a message.
    server.write_all(&ONE[..3]).await.unwrap();
    client.read_exact(&mut seen[..3]).await.unwrap();
    say.send(()).unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    server.write_all(&[&ONE[3..], ONE].concat()).await.unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, [&ONE[3..], b"\x81\x03no\n\x88\x02\x03\xe8"].concat());
    piping.await.unwrap().unwrap();
    assert_eq!(server.read(&mut seen).await.unwrap(), 0, "the apiserver's side ends, too");
}

#[tokio::test(start_paused = true)]
async fn nobody_keeps_it_open() {
    // A client that reads nothing, and a server that never ends its message.
    for stuck in [&vec![0x82, 126, 0xff, 0xff][..], &vec![0x81; 200_000]] {
        let ((_client, its_end), (mut server, servers_end)) = (duplex(64), duplex(1 << 20));
        server.write_all(stuck).await.unwrap();
        let over = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            None
        };
        let started = Instant::now();
        let ended = pipe_until(its_end, servers_end, over).await;
        assert!(started.elapsed() <= PARTING + Duration::from_secs(2), "{ended:?}");
    }
}
