use super::*;

const RED: Style = Style { colors: true, width: usize::MAX };

#[test]
fn fits_a_terminal() {
    let json = r#"{"version":"1.2.3","server":"https://kubernetes.default.svc.cluster.local","ready":true,"served":123456789,
        "own":1234567,"forwarded":345678,"refused":12345,
        "spared":{"requests":123456789,"bytes":123456789012,"events":1234567890,"deliveriesPerEvent":123.4},
        "upstream":{"reachable":false,"sinceSeconds":80,"lastError":"cannot connect: connection refused by the peer"},
        "memoryLimitBytes":123456789012,
            "past":[{"at":0,"spared":0},{"at":3595,"spared":9000},{"at":3600,"spared":90000,"sentEvents":123456789,"sentBytes":123456789012,
            "receivedEvents":12345678,"receivedBytes":12345678901,"lagP50":0.0123,"lagP99":12.3}],
            "queues":[{"name":"a-queue-with-a-name-that-is-much-longer-than-others","user":"system:serviceaccount:a:b","workers":1000,"objects":50000,
            "depth":12345,"held":1000,"delayed":12345,"retries":1234567}],
        "caches":[{"resource":"customresourcedefinitions.apiextensions.k8s.io","namespace":"a-long-namespace",
        "labelSelector":"app.kubernetes.io/name=web","encoding":"protobuf","ready":true,"failing":true,
        "step":"waiting to retry","retrySeconds":30,"lastError":"an error whose text is longer than any line of a terminal",
        "objects":12345,"bytes":123456789,"watchers":1234,"events":12345678}],
        "clients":[{"address":"fd00:1234:5678:9abc:def0:1234:5678:9abc","user":"system:serviceaccount:a:b",
        "program":"kube-controller-manager/v1.36.0 (linux/amd64) kubernetes/abc","protocol":"HTTP/2","requests":123456}],
        "forwards":[{"address":"10.0.0.7","program":"kubectl/v1.36.0 (linux/amd64) kubernetes/abc","reason":"outside_window",
        "count":12,"cause":"it asks for a revision that the window does not hold, or no longer","change":"raise it"}]}"#;
    let status: Status = serde_json::from_str(json).unwrap();
    let text = status.render(Style { colors: false, width: 80 });
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}\nin\n{text}");
    }
    for part in [
        "RESOURCE",
        "WATCHERS",
        "CLIENT",
        "BYTES",
        "QUEUE",
        "HELD",
        "lag ",
        "flow ",
        "an error whose text",
        "raise it",
        "█\n",
        "at most ",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    // A word that is longer than a line is not broken, so that an address can be copied.
    let status = Status { server: "https://10.96.0.1".to_owned(), ..status };
    for width in 40..=80 {
        let text = status.render(Style { colors: false, width });
        for line in text.lines() {
            let is_word = !line.trim().contains(' ');
            assert!(is_word || line.chars().count() <= width, "{width}: {line}\nin\n{text}");
        }
        assert!(text.contains("WATCHERS") && text.contains("█\n"), "{text}");
    }
}

/// Users, programs, errors and names may be anything.
#[test]
fn a_terminal_obeys_nothing_of_what_is_shown() {
    let hostile = |json: &str| json.replace('@', r"\u001b[2J\u009b2J\n");
    let status = r#"{"version":"@","server":"@","pending":["@"],"upstream":{"reachable":false,"lastError":"@"},
        "queues":[{"name":"@","user":"@"}],"caches":[{"resource":"@","namespace":"@","labelSelector":"@","fieldSelector":"@",
        "failing":true,"step":"@","lastError":"@"}],"clients":[{"address":"@","user":"@","program":"@","protocol":"@"}],
        "forwards":[{"address":"@","user":"@","program":"@","protocol":"@","reason":"@","cause":"@","change":"@"}]}"#;
    let status: Status = serde_json::from_str(&hostile(status)).unwrap();
    let explanation = r#"{"plan":"@","reason":"@","cause":"@","change":"@","informer":"@","authenticating":"@"}"#;
    let explanation: Explanation = serde_json::from_str(&hostile(explanation)).unwrap();
    let texts = [8, 80, usize::MAX].map(|width| status.render(Style { colors: false, width }));
    for text in texts.into_iter().chain([explanation.render("/api")]) {
        assert!(text.contains(r"\u{1b}") && !text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }
}

#[test]
fn shows_what_the_page_shows() {
    let json = r#"{"version":"1.2.3","server":"https://a","ready":false,"pending":["informer pods"],"served":100,"own":10,"forwarded":3,"refused":1,
        "spared":{"requests":90,"bytes":-2048,"events":1200,"deliveriesPerEvent":49.96},
        "residentBytes":33554432,"memoryLimitBytes":536870912,"unknown":1,
        "past":[{"at":0,"spared":0},{"at":30,"spared":30},{"at":40,"spared":20},{"at":50,"spared":20,"sentEvents":500,"sentBytes":2048000,"receivedEvents":10,"receivedBytes":20480},
            {"at":60,"spared":80,"sentEvents":1500,"sentBytes":4096000,"receivedEvents":20,"receivedBytes":40960,"lagP50":0.0004,"lagP99":0.0021}],
            "queues":[{"name":"pods-to-check","workers":2,"objects":100,"depth":7,"held":3,"delayed":1,"retries":9}],
        "caches":[{"resource":"pods","namespace":"a","fieldSelector":"spec.nodeName=n","encoding":"json","state":"listing",
        "lastError":"no route","objects":7,"bytes":2048,"idleSeconds":7,"silentSeconds":3},
        {"resource":"nodes","encoding":"protobuf","ready":true,"state":"watching","idleSeconds":150}],
        "clients":[{"address":"10.0.0.7","program":"kubectl/v1","protocol":"HTTP/2","watches":2,"requests":12,"bytes":4096}],
        "forwards":[{"address":"10.0.0.7","program":"kubectl/v1","protocol":"HTTP/2","reason":"encoding","count":12,"cause":"no","change":"do"},
        {"address":"","program":"others","reason":"encoding","count":1,"cause":"no","change":"do"}]}"#;
    let status: Status = serde_json::from_str(json).unwrap();
    let text = status.render(Style::PLAIN);
    for line in [
        "informerd 1.2.3 in front of https://a: not ready: informer pods",
        "flow       apiserver → informerd: 1 events/s, 2Ki/s",
        "           informerd → clients:   100 events/s, 200Ki/s",
        "lag        of deliveries: p50 0.4 ms, p99 2.1 ms",
        "spared     90 requests, -2.0 KiB, 1,200 events (50.0 deliveries per event received)",
        "requests   100 reads from the caches, 3 forwarded, 1 refused; 10 of its own",
        "memory     32Mi of 512Mi",
        "pods              a,spec.nodeName=n  not ready: listing  3s          7        2Ki     0s      0         0       0",
        "nodes (protobuf)  all                watching            2m          0        0Ki     0s      0         0       0",
        "pods: no route",
        "10.0.0.7  –     kubectl/v1  HTTP/2    2        12        4Ki",
        "12         encoding  10.0.0.7  –     kubectl/v1  HTTP/2",
        "1          encoding  –         –     others      –",
        "encoding: no; do",
        "QUEUE          USER  WORKERS  OBJECTS  READY  HELD  DELAYED  RETRIES",
        "pods-to-check  –     2        100      7      3     1        9",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
    }
    assert!(!text.contains("unreachable"), "a daemon that does not tell: {text}");
    let plot = text.lines().find(|line| line.starts_with("plot")).unwrap();
    assert!(
        plot.contains('▅') && plot.contains('█') && plot.ends_with("requests spared in the last 60s, at most 60/s"),
        "{plot}"
    );
}

#[test]
fn an_apiserver_that_does_not_answer_stands_out() {
    let json = r#"{"version":"1","server":"https://a","ready":true,"servedAgeSeconds":85,
        "past":[{"at":5,"spared":0},{"at":10,"spared":0}],
            "upstream":{"reachable":false,"sinceSeconds":80,"lastError":"cannot connect","silentSeconds":84},
        "caches":[{"resource":"pods","ready":true,"state":"wait","step":"waiting to retry","retrySeconds":3,
        "failing":true,"lastError":"broke off","errorSeconds":4,"silentSeconds":85},
        {"resource":"nodes","ready":true,"state":"follow","step":"watching","lastError":"long ago"},
        {"resource":"services","failing":true,"lastError":"broke off","errorSeconds":9},
        {"resource":"events","lastError":"forbidden","errorSeconds":2}]}"#;
    let mut status: Status = serde_json::from_str(json).unwrap();
    let text = status.render(Style::PLAIN);
    for line in [
        "informerd 1 in front of https://a: ready, apiserver unreachable",
        "apiserver  unreachable for 80s: cannot connect",
        "           what is served is up to 85s old",
        "pods, services: broke off (4s ago)",
        "events: forbidden (2s ago)",
        "flow       apiserver → informerd: broken",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
        let painted = status.render(RED);
        assert!(painted.contains(&format!("\x1b[31m{line}\x1b[0m\n")), "{line}\nin\n{painted}");
    }
    assert!(text.contains("waiting to retry in 3s  85s ") && !text.contains("long ago"), "{text}");
    status.upstream = Some(Apiserver { reachable: true, ..Apiserver::default() });
    assert!(status.render(RED).starts_with("informerd 1 in front of https://a: ready\n\n"));
}

#[test]
fn an_answer_without_the_history_continues_it() {
    let answer = |now: u64, points: &[u64]| {
        let past = points.iter().map(|at| Point { at: *at, ..Point::default() }).collect();
        Status { now, past, ..Status::default() }
    };
    let times = |status: &Status| status.past.iter().map(|point| point.at).collect::<Vec<_>>();
    let first = answer(5000, &[1396, 1401, 4995, 5000]);
    let second = answer(5001, &[]).following(&first.past);
    assert_eq!(times(&second), [4995, 5000]);
    let third = answer(5005, &[5005]).following(&second.past);
    assert_eq!(times(&third), [4995, 5000, 5005]);
    // The clock was set back: nothing is kept, so the next question is for all of it.
    assert_eq!(times(&answer(4000, &[]).following(&third.past)), [0; 0]);
}
