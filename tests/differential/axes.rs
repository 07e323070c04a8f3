//! What a generated request is put together from: values that mean something, and values that mean nothing.

/// Each with its weight.
pub(crate) type Pool = &'static [(usize, &'static str)];

/// Each selects some of the objects of every kind, and not all.
pub(crate) const SOME: &[&str] = &[
    "app=x",
    "app==x",
    "app!=x",
    "app notin (x)",
    "n>5",
    "n<5",
    "app=x,n",
    "app in (x,)",
    " app = x ",
    "app\tin\n(x)",
    "app in (x),n notin (7)",
];

pub(crate) const LABELS: &[&str] = &[
    "app=x",
    "app in (x,y)",
    "app",
    "!app",
    "missing=",
    "empty=",
    "app=x,app=y",
    "x in ()",
    "round=3",
    // What does not parse.
    "a b",
    "!",
    "x in",
    "x in a",
    "x in (",
    "x in (a",
    "x in (a b)",
    "x in (!a)",
    "a)",
    "a!b",
    "a===b",
    "a=!b",
    "x>a",
    "x>-1",
    "a,",
    ",a",
    "a,,b",
    "=a",
    "(a)",
    "a=b=c",
    "!x=a",
    "x=a b",
    "a$=b",
    "/a",
    "a/b/c",
    "A/a",
    "a=b$",
    "a=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "é=x",
    "a=é",
];

pub(crate) const FIELDS: &[&str] = &[
    "metadata.name=one",
    "metadata.name==one",
    "metadata.name!=one",
    "metadata.namespace=diff-a",
    "metadata.namespace!=diff-a",
    "metadata.namespace=diff-foo",
    "metadata.name=missing",
    "metadata.name=",
    "metadata.name=a/b",
    "metadata.name=..",
    "metadata.name=A_B",
    "metadata.name=one,metadata.name=two",
    "metadata.name=one,metadata.namespace=diff-a",
    "metadata.namespace=",
    "metadata.name=one,,",
    ",",
    "spec.foo=x",
    "a>b",
    "metadata.name",
    "metadata.name=a\\x",
    "metadata.name=a\\",
    "metadata.name=a=b",
    "metadata.name=a\\,b",
    " metadata.name=one",
    "metadata.name=one ",
    "=x",
    "!=x",
    "metadata.uid=x",
    "metadata.labels.app=x",
];

pub(crate) const REVISIONS: Pool = &[
    (300, "-"),
    (220, "0"),
    (150, "{now}"),
    (120, "{old}"),
    (12, ""),
    (12, "00"),
    (12, "abc"),
    (12, "-1"),
    (8, "%2B1"),
    (24, "1"),
    (8, "18446744073709551615"),
    (8, "18446744073709551616"),
    (8, "0{now}"),
    (6, "{now}.0"),
    (6, "%205"),
    (5, "{next}"),
    (5, "{far}"),
    (4, "9223372036854775808"),
];

/// Which state, in requests that make sense.
pub(crate) const STATES: Pool = &[
    (15, ""),
    (20, "resourceVersion=0"),
    (15, "resourceVersion={now}"),
    (15, "resourceVersion={now}&resourceVersionMatch=Exact"),
    (15, "resourceVersion={old}&resourceVersionMatch=Exact"),
    (10, "resourceVersion={old}&resourceVersionMatch=NotOlderThan"),
    (10, "resourceVersion={old}"),
];

/// Where watches start, in requests that make sense.
pub(crate) const STARTS: Pool = &[
    (10, ""),
    (15, "resourceVersion=0"),
    (15, "resourceVersion={now}"),
    (30, "resourceVersion={old}"),
    (10, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
    (10, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion={old}"),
    (5, "sendInitialEvents=false&resourceVersionMatch=NotOlderThan&resourceVersion={old}"),
    (5, "resourceVersion={far}"),
];

/// The encodings of requests that make sense: of lists, and of single objects and watches.
pub(crate) const ENCODINGS: &[[&str; 2]] = &[
    ["application/json"; 2],
    ["application/vnd.kubernetes.protobuf,application/json"; 2],
    [
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    ],
    [
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
    ],
    ["application/json;as=Table;v=v1;g=meta.k8s.io,application/json"; 2],
];

pub(crate) const MATCHES: Pool = &[
    (600, "-"),
    (120, "NotOlderThan"),
    (170, "Exact"),
    (20, "Foo"),
    (20, ""),
    (15, "exact"),
    (10, "NotOlderThan,Exact"),
];

pub(crate) const LIMITS: Pool = &[
    (620, "-"),
    (100, "1"),
    (70, "2"),
    (40, "3"),
    (50, "500"),
    (20, "0"),
    (20, "-1"),
    (15, "x"),
    (12, ""),
    (10, "9223372036854775807"),
    (8, "9223372036854775808"),
    (6, "1.5"),
    (6, "0x1"),
    (6, "%2B1"),
    (5, "1_000"),
];

/// The base64 of a token's JSON is put together where it says `b64:`.
pub(crate) const TOKENS: Pool = &[
    (820, "-"),
    (110, "{token}"),
    (6, ""),
    (6, "x"),
    (6, "!!!"),
    (6, "e30"),
    (6, "bm90IGpzb24"),
    (6, "{token}="),
    (6, "{token}x"),
    (6, r#"b64:{"v":"meta.k8s.io/v1","rv":{now},"start":"/diff-a/one\u0000"}"#),
    (6, r#"b64:{"v":"meta.k8s.io/v1","rv":{now},"start":"diff-a/one\u0000"}"#),
    (6, r#"b64:{"v":"meta.k8s.io/v1","rv":{old},"start":"/diff-a/one\u0000"}"#),
    (6, r#"b64:{"v":"meta.k8s.io/v1","rv":{old},"start":"one\u0000"}"#),
    (6, r#"b64:{"v":"meta.k8s.io/v1","rv":-1,"start":"/diff-a/one\u0000"}"#),
    (6, r#"b64:{"v":"meta.k8s.io/v1","rv":-1,"start":"one\u0000"}"#),
    (6, r#"b64:{"v":"meta.k8s.io/v1","rv":1,"start":"/diff-a/one\u0000"}"#),
    (6, r#"b64:{"v":"meta.k8s.io/v1","rv":0,"start":"/diff-a/one\u0000"}"#),
    (6, r#"b64:{"v":"meta.k8s.io/v1","rv":{now},"start":""}"#),
    (6, r#"b64:{"v":"meta.k8s.io/v1","rv":{now},"start":"../x"}"#),
    (6, r#"b64:{"v":"meta.k8s.io/v1","rv":{now},"start":"/../x\u0000"}"#),
    (6, r#"b64:{"v":"meta.k8s.io/v2","rv":{now},"start":"/one\u0000"}"#),
    (6, r#"b64:{"v":"meta.k8s.io/v1","rv":"5","start":"/one\u0000"}"#),
    (6, r#"b64:{"V":"meta.k8s.io/v1","RV":{now},"START":"/diff-a/one\u0000","more":[]}"#),
    (2, r#"b64:{"v":"meta.k8s.io/v1","rv":{far},"start":"/one\u0000"}"#),
];

pub(crate) const WATCHES: Pool = &[
    (500, "watch=1"),
    (150, "watch=true"),
    (60, "watch"),
    (60, "watch="),
    (30, "watch=no"),
    (20, "watch=TRUE"),
    (20, "watch=t"),
    (40, "watch=false"),
    (40, "watch=0"),
    (20, "watch=FALSE"),
    (20, "watch=1&watch=0"),
    (20, "watch=0&watch=1"),
    (10, "Watch=1"),
    (10, "%77atch=1"),
];

pub(crate) const INITIAL: Pool =
    &[(500, "-"), (160, "true"), (100, "false"), (30, "1"), (30, "0"), (30, ""), (10, "x")];

pub(crate) const BOOKMARKS: Pool = &[(400, "-"), (400, "true"), (60, "1"), (60, "false"), (30, "")];

/// Of streams: a second is enough where nothing happens.
pub(crate) const TIMEOUTS: Pool =
    &[(940, "1"), (10, "x"), (10, ""), (10, "1.5"), (10, "18446744073709551616"), (10, "%2B1")];

/// Parameters that mean nothing to most reads, or break their decoding.
pub(crate) const MORE: &[&str] = &[
    "foo=bar",
    "dryRun=All",
    "namespace=diff-foo",
    "fieldValidation=Strict",
    "shardSelector=x",
    "shardSelector=shardRange(object.metadata.uid,%270x0000000000000000%27,%270x8000000000000000%27)",
    "shardSelector=shardRange(object.metadata.uid,%270x8000000000000000%27,%270x10000000000000000%27)",
    "shardSelector=shardRange(object.metadata.namespace,%270x0000000000000000%27,%270x8000000000000000%27)",
    "shardSelector=shardRange(object.metadata.namespace,%270x8000000000000000%27,%270x10000000000000000%27)",
    "shardSelector=shardRange(object.metadata.uid,%270x0000000000000000%27,%270x4000000000000000%27)%7C%7CshardRange(object.metadata.uid,%270xc000000000000000%27,%270x10000000000000000%27)",
    "timeout=5s",
    "timeout=x",
    "timeout=-1s",
    "timeout=0",
    "timeout=",
    "export=true",
    "export=1",
    "export=",
    "includeObject=Object",
    "includeObject=None",
    "includeObject=x",
    "pretty",
    "pretty=",
    "pretty=true",
    "pretty=1",
    "pretty=0",
    "pretty=x",
    "allowWatchBookmarks=true",
    "timeoutSeconds=x",
    "timeoutSeconds=-1",
    "limit=1;limit=2",
    "a=%zz",
    "%zz=a",
    "%",
    "a=%",
    "=",
    "&&",
    "labelSelector=%ff",
    "resourceVersion",
    "kind=Pod",
    "apiVersion=v2",
    "sendInitialEvents",
    "x=%00",
    "labelSelector",
    "fieldSelector",
    "limit",
    "continue",
];

pub(crate) const ACCEPTS: Pool = &[
    (420, "-"),
    (100, "application/json"),
    (20, "*/*"),
    (20, "application/*"),
    (10, "APPLICATION/JSON"),
    (10, "application/json, */*"),
    (10, "application/xml"),
    (10, "text/html;q=0.9, */*;q=0.1"),
    (30, "application/yaml"),
    (60, "application/vnd.kubernetes.protobuf"),
    (40, "application/vnd.kubernetes.protobuf,application/json"),
    (10, "application/vnd.kubernetes.protobuf;q=0.5,application/json"),
    (10, "application/json;q=0.5,application/vnd.kubernetes.protobuf"),
    (10, "application/vnd.kubernetes.protobuf;stream=watch"),
    (15, "application/cbor"),
    (10, "application/cbor,application/json"),
    (10, "application/cbor-seq"),
    (10, "application/json;q=0.5,application/yaml;q=0.4"),
    (10, "application/json;q=0.4,application/yaml;q=0.5"),
    (10, "application/json;q=0"),
    (10, "application/json;q=2"),
    (10, "application/json;q=x"),
    (10, "application/json;charset=utf-8"),
    (15, "application/json;pretty=1"),
    (10, "application/json;stream=watch"),
    (10, "application/json;stream=foo"),
    (60, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
    (60, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
    (20, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1"),
    (20, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1"),
    (20, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"),
    (20, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"),
    (30, "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
    (30, "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
    (10, "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1"),
    (10, "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1"),
    (
        15,
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
         application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    ),
    (
        15,
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
         application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
    ),
    (10, "application/yaml;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
    (40, "application/json;as=Table;v=v1;g=meta.k8s.io"),
    (20, "application/json;as=Table;v=v1beta1;g=meta.k8s.io"),
    (
        20,
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
    ),
    (10, "application/json;as=Table;v=v9;g=meta.k8s.io,application/json"),
    (10, "application/json;as=Table;v=v1;g=wrong"),
    (10, "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io"),
    (10, "application/json;as=Foo;g=meta.k8s.io;v=v1,application/json"),
    (10, "application/json;as=PartialObjectMetadataList"),
    (10, "application/json;g=meta.k8s.io"),
    (5, "application/json;;"),
    (5, ","),
    (5, ";"),
    (5, "json"),
    (5, "application/json,"),
    (5, "application/json;as=;g=;v="),
    (5, "application/json;profile=x"),
    (5, "application/json;sv=x"),
    (5, "application/json;export=1"),
    (5, "application/json;foo=bar"),
    (5, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1;foo=bar"),
    (5, "\t"),
];

/// What a path has behind its object.
pub(crate) const SUBRESOURCES: &[&str] =
    &["status", "scale", "nosub", "status/more", "finalize", "log", "binding", "ephemeralcontainers", "proxy"];

pub(crate) const NAMES: &[&str] =
    &["A_B", "%20", "a%25b", "a%2Fb", ".", "..", "%2e%2e", "%C3%A9", "x%FF", "a%3Fx", "%00"];

pub(crate) const NAMESPACES: &[&str] =
    &["none", "A_B", "%20", "a%25b", "a%2Fpods", "diff-a%2Fpods", "%2e%2e", "x%FF", "default"];

/// Paths that are no objects'.
pub(crate) const OTHER: &[&str] = &[
    "/",
    "/api",
    "/api/",
    "/api/v1",
    "/apis",
    "/apis/apps",
    "/apis/apps/v1",
    "/apis/differential.example.com",
    "/apis/differential.example.com/v1",
    "/apis/differential.example.com/v2",
    "/apis/nope",
    "/version",
    "/healthz",
    "/livez",
    "/readyz",
    "/nope",
    "/api/v1/watch",
    "/api/v1/watch/",
    "/apis/apps/v1/watch/",
    "/api/v2/pods",
    "/api/v1/proxy",
    "/openapi/v3",
    "/healthz/ping",
    "//",
    "/api//v1/pods",
    "/apis//v1/pods",
    "/./api/v1/pods",
    "/api/v1/../v1/pods",
    "/logs",
    "/.well-known/openid-configuration",
    "/api/v1/componentstatuses/etcd-0",
];

pub(crate) const METHODS: &[&str] = &["HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "FOO", "get"];
