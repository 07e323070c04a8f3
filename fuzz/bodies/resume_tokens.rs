//! Resume tokens of gRPC, against what prost reads; and selections, of which a token must tell one from another.

use informerd::grpc::TokenBase;
use informerd::grpc::pb::v1::{Filter, Resource, Selection, Shape};
use informerd::meta::ResourceVersion;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct Token {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(fixed64, tag = "2")]
    cluster: u64,
    #[prost(fixed64, tag = "3")]
    selection: u64,
    #[prost(uint64, tag = "4")]
    rv: u64,
}

pub fn check(data: &[u8]) {
    // As a token that comes from a client.
    let base = TokenBase::new("c", &selection("pods"));
    let own = Token::decode(&*base.at(ResourceVersion(1))).expect("a token is a message");
    let expected = Token::decode(data).ok().filter(|token| {
        token.version == 1 && token.selection == own.selection && (token.cluster == 0 || token.cluster == own.cluster)
    });
    let read = base.read(data);
    assert_eq!(read.clone().ok(), expected.map(|token| (token.rv != 0).then_some(ResourceVersion(token.rv))));
    // As selections: the same one gives the same token, and another one refuses it.
    let parts: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let [one, other] = [0, 1]
        .map(|n| Selection::decode(parts.get(n).copied().unwrap_or_default()).unwrap_or_else(|_| selection("pods")));
    let rv = ResourceVersion(u64::from(data.first().copied().unwrap_or(1)) + 1);
    let token = TokenBase::new("c", &one).at(rv);
    assert_eq!(TokenBase::new("c", &one).read(&token).ok(), Some(Some(rv)));
    let is_same = canonical(&one) == canonical(&other);
    assert_eq!(TokenBase::new("c", &other).read(&token).is_ok(), is_same, "{one:?} and {other:?}");
    assert!(TokenBase::new("d", &one).read(&token).is_err(), "another cluster");
}

/// Neither the encoding nor the order of filters makes another selection, nor does a shape that is left out.
fn canonical(selection: &Selection) -> Selection {
    let mut canonical = Selection { encoding: 0, ..selection.clone() };
    canonical.filters.sort_by_key(Message::encode_to_vec);
    if canonical.shape() == Shape::Full {
        canonical.set_shape(Shape::Unspecified);
    }
    canonical
}

fn selection(resource: &str) -> Selection {
    let filter = |labels: &str| Filter { label_selector: labels.to_owned(), ..Filter::default() };
    Selection {
        resource: Some(Resource { group: String::new(), version: "v1".into(), resource: resource.into() }),
        filters: vec![filter("a"), filter("b")],
        ..Selection::default()
    }
}
