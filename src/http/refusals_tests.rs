use super::*;

#[tokio::test]
async fn a_request_of_our_own_goes_no_further() {
    let server = start().await;
    let pods = "/api/v1/namespaces/a/pods";
    let response = server.send(Request::get(pods).header("x-informerd-via", "ours")).await;
    assert_eq!(response.status(), 508);
    assert!(text(response).await.contains("its kubeconfig leads to informerd itself"));
    assert!(server.asked().is_empty());
    assert_ne!(server.send(Request::get(pods).header("x-informerd-via", "another's")).await.status(), 508);
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_refused() {
    let server = start().await;
    for (head, wanted) in [
        ("Transfer-Encoding: chunked", "HTTP/1.1 400 Bad Request"),
        ("Transfer-Encoding: identity, chunked", "HTTP/1.1 501 Not Implemented"),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "HTTP/1.1 400 Bad Request"),
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request =
            format!("POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\nzz\r\nno chunk\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.ok();
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with(wanted), "{head}: {answer}");
    }
}
