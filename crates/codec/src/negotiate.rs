//! Chooses the encoding and shape that an `Accept` header requests. It decides as the apiserver does, but only for
//! the formats that informerd serves.

use super::table::TableShape;
use super::{Format, Shape};
use informerd_meta::Encoding;

/// The kind of read. It determines which transforms are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadKind {
    Get,
    List,
    Watch,
}

/// The format of a Status that is the response to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusForm {
    pub encoding: Encoding,
    /// Whether to indent JSON. Always false for other encodings.
    pub indent: bool,
}

/// The most clauses that are sorted here. For more, the apiserver uses another sort algorithm, with a different
/// result.
const MAX_CLAUSES: usize = 12;

#[derive(Clone, Copy, PartialEq, Eq)]
enum MediaType {
    Json,
    Yaml,
    Protobuf,
    Cbor,
}

/// One clause of the header, if a media type here can match it.
#[derive(Clone, Copy)]
struct Clause<'a> {
    main: &'a str,
    sub: &'a str,
    /// Everything after the first semicolon.
    params: &'a str,
    quality: f32,
}

/// The result of the parameters of a clause.
enum Params {
    /// The apiserver would skip the clause for this media type.
    Skip,
    /// The clause cannot be decided here.
    Doubt,
    Take {
        shape: Shape,
        pretty: bool,
    },
}

/// The result of a header.
enum Chosen {
    Take(MediaType, Shape, bool),
    /// No clause fits.
    Nothing,
    /// The format is not served here, or the result cannot be decided here.
    Doubt,
}

/// Decides by the value of the first `Accept` header line. The value is "" when the header is missing. Returns the
/// format, and whether the clause of JSON has `pretty=1`, which the apiserver honours except in watches. Returns `None`
/// for any other result, including errors. The apiserver must answer such a request.
pub fn accept(header: &str, kind: ReadKind) -> Option<(Format, bool)> {
    if header.is_empty() {
        return Some((Format::json(Shape::Full), false));
    }
    let clauses = parse(header)?;
    let of_media = |protobuf| choose(&clauses, Some(kind), protobuf);
    match of_media(true) {
        Chosen::Take(MediaType::Json, shape @ Shape::Table(_), pretty) => {
            Some((Format { encoding: Encoding::Table, ..Format::json(shape) }, pretty))
        }
        Chosen::Take(MediaType::Json, shape, pretty) => Some((Format::json(shape), pretty)),
        Chosen::Take(MediaType::Protobuf, shape, _) => {
            let (json_fallback, pretty) = match of_media(false) {
                // Tables have their own caches, so they cannot be the fallback.
                Chosen::Take(MediaType::Json, shape, pretty) if !matches!(shape, Shape::Table(_)) => {
                    (Some(shape), pretty)
                }
                _ => (None, false),
            };
            Some((Format { encoding: Encoding::Protobuf, shape, json_fallback }, pretty))
        }
        _ => None,
    }
}

/// Chooses the format of an error response by the same header; `None` where it cannot be decided here. Clauses with a
/// transform do not count. If no other clause is left, the result is indented JSON. The apiserver's `pretty` query
/// parameter and its indenting for some clients are applied separately.
pub fn status(header: &str) -> Option<StatusForm> {
    if header.is_empty() {
        return Some(StatusForm::default());
    }
    match choose(&parse(header)?, None, true) {
        Chosen::Take(MediaType::Json, _, indent) => Some(StatusForm { encoding: Encoding::Json, indent }),
        Chosen::Take(MediaType::Protobuf, ..) => Some(StatusForm { encoding: Encoding::Protobuf, indent: false }),
        Chosen::Nothing => Some(StatusForm { encoding: Encoding::Json, indent: true }),
        Chosen::Take(..) | Chosen::Doubt => None,
    }
}

/// Returns the first clause and media type that match. `kind` is `None` for a Status.
fn choose(clauses: &[Clause<'_>], kind: Option<ReadKind>, protobuf: bool) -> Chosen {
    for clause in clauses {
        // The apiserver prefers the media types in this order.
        for media in [MediaType::Json, MediaType::Yaml, MediaType::Protobuf, MediaType::Cbor] {
            if !clause.matches(media) || (media == MediaType::Protobuf && !protobuf) {
                continue;
            }
            match params(clause.params, media, kind) {
                Params::Skip => {}
                Params::Doubt => return Chosen::Doubt,
                // The router in front of the built-in types compares literally and rejects these.
                Params::Take { .. } if kind.is_some() && clause.sub == "*" && !clause.literal_any() => {
                    return Chosen::Doubt;
                }
                Params::Take { .. } if matches!(media, MediaType::Yaml | MediaType::Cbor) => return Chosen::Doubt,
                Params::Take { shape, pretty } => return Chosen::Take(media, shape, pretty),
            }
        }
    }
    Chosen::Nothing
}

/// Sorts the clauses into the order in which the apiserver tries them. Its comparison is not a consistent order: a
/// quality counts only where it is greater, so `*/*` loses to a type of lower quality that follows it. The apiserver
/// uses insertion sort, so this function does the same.
fn sort(clauses: &mut [Clause<'_>]) {
    for end in 1..clauses.len() {
        for at in (1..=end).rev() {
            if !clauses[at].before(&clauses[at - 1]) {
                break;
            }
            clauses.swap(at, at - 1);
        }
    }
}

/// Splits the header into clauses as the apiserver's parser does, in the order in which it tries them. Returns `None`
/// when a quality is not a plain number, or when there are too many clauses.
fn parse(header: &str) -> Option<Vec<Clause<'_>>> {
    let mut clauses = Vec::new();
    for part in header.split(',') {
        let (range, params) = split(part.trim_matches(' '), ';');
        let (main, rest) = split(range, '/');
        let (sub, rest) = split(rest, '/');
        if !rest.is_empty() || sub.is_empty() {
            // The handler takes a lone `*` as a wildcard, but the router does not, so it is not decided here. Other
            // clauses without a subtype are skipped.
            if main.trim_matches(' ') == "*" {
                return None;
            }
            continue;
        }
        // The handler trims spaces here, but the router in front of it does not.
        if main.ends_with(' ') || sub.starts_with(' ') {
            return None;
        }
        let mut quality = 1.0;
        for param in params.split(';') {
            let Some((name, value)) = parameter(param) else { continue };
            if name == "q" {
                let plain = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit() || b == b'.');
                quality = value.parse::<f32>().ok().filter(|_| plain)?;
            }
        }
        clauses.push(Clause { main, sub: sub.trim_matches(' '), params, quality });
    }
    if clauses.len() > MAX_CLAUSES {
        return None;
    }
    sort(&mut clauses);
    Some(clauses)
}

/// Splits `name=value` and trims the name. Returns `None` for a parameter of any other form; it is skipped.
fn parameter(param: &str) -> Option<(&str, &str)> {
    let (name, rest) = split(param, '=');
    let (value, rest) = split(rest, '=');
    (!value.is_empty() && rest.is_empty()).then_some((name.trim_matches(' '), value))
}

/// Splits at the first separator. Without a separator the second part is empty.
fn split(text: &str, separator: char) -> (&str, &str) {
    text.split_once(separator).unwrap_or((text, ""))
}

fn params(params: &str, media: MediaType, kind: Option<ReadKind>) -> Params {
    let (mut transform, mut name, mut group, mut version) = (false, "", "", "");
    let (mut pretty, mut stream) = (false, None);
    for param in params.split(';') {
        let Some((key, value)) = parameter(param) else { continue };
        let value = value.trim_matches(' ');
        // When a name is repeated, the last value counts.
        match key {
            "as" => (transform, name) = (true, value),
            "g" => (transform, group) = (true, value),
            "v" => (transform, version) = (true, value),
            "stream" => stream = Some(value),
            "pretty" => pretty = value == "1",
            // KEP-5958 gives `drop` a meaning. The meanings of the others are not served here.
            "sv" | "export" | "profile" | "drop" => return Params::Doubt,
            _ => {}
        }
    }
    match stream {
        None => {}
        Some("watch") if matches!(kind, None | Some(ReadKind::Watch)) => {}
        Some("watch" | "") => return Params::Doubt,
        Some(_) => return Params::Skip,
    }
    if !transform {
        return Params::Take { shape: Shape::Full, pretty };
    }
    let Some(kind) = kind else { return Params::Skip };
    let shape = match (group, version) {
        ("meta.k8s.io", "v1") => Shape::PartialObjectMetadata,
        ("meta.k8s.io", "v1beta1") => Shape::PartialObjectMetadataV1beta1,
        _ => return Params::Skip,
    };
    match (name, kind) {
        ("PartialObjectMetadata", ReadKind::Get | ReadKind::Watch) | ("PartialObjectMetadataList", ReadKind::List) => {
            Params::Take { shape, pretty }
        }
        // The apiserver answers this with an error in its own wording.
        ("PartialObjectMetadata" | "PartialObjectMetadataList", _) => Params::Doubt,
        ("Table", _) if matches!(media, MediaType::Json | MediaType::Yaml) => {
            let v1beta1 = shape == Shape::PartialObjectMetadataV1beta1;
            Params::Take { shape: Shape::Table(TableShape { v1beta1, ..TableShape::default() }), pretty }
        }
        _ => Params::Skip,
    }
}

// === impl Clause ===

impl Clause<'_> {
    fn before(&self, other: &Self) -> bool {
        self.quality > other.quality || (self.main != "*" && other.main == "*") || (self.sub != "*" && other.sub == "*")
    }

    fn literal_any(&self) -> bool {
        self.main == "*" && self.sub == "*"
    }

    fn matches(&self, media: MediaType) -> bool {
        let sub = match media {
            MediaType::Json => "json",
            MediaType::Yaml => "yaml",
            MediaType::Protobuf => "vnd.kubernetes.protobuf",
            MediaType::Cbor => "cbor",
        };
        self.literal_any() || (self.main == "application" && (self.sub == "*" || self.sub == sub))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Accepted = Option<(Format, bool)>;

    const FULL: Accepted = Some((Format::json(Shape::Full), false));
    const PARTIAL: Accepted = Some((Format::json(Shape::PartialObjectMetadata), false));

    fn table(v1beta1: bool) -> Accepted {
        let shape = Shape::Table(TableShape { v1beta1, ..TableShape::default() });
        Some((Format { encoding: Encoding::Table, shape, json_fallback: None }, false))
    }

    fn protobuf(shape: Shape, json_fallback: Option<Shape>) -> Accepted {
        Some((Format { encoding: Encoding::Protobuf, shape, json_fallback }, false))
    }

    #[test]
    fn what_clients_send() {
        use ReadKind::{Get, List, Watch};
        let full = Some(Shape::Full);
        let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
        let one = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
        let tables = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let or_table = "application/vnd.kubernetes.protobuf,application/json;as=Table;v=v1;g=meta.k8s.io";
        for (header, kind, expected) in [
            ("", List, FULL),
            ("*/*", Watch, FULL),
            ("application/json", Get, FULL),
            ("application/json, */*", List, FULL),
            ("application/json, */*;q=0.8", List, FULL),
            ("application/json;stream=watch", Watch, FULL),
            ("text/html;q=0.9, */*;q=0.1", Get, FULL),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Get, FULL),
            ("application/json;charset=utf-8", Get, FULL),
            ("application/vnd.kubernetes.protobuf,application/json", Watch, protobuf(Shape::Full, full)),
            ("application/vnd.kubernetes.protobuf, */*", List, protobuf(Shape::Full, full)),
            ("application/vnd.kubernetes.protobuf", List, protobuf(Shape::Full, None)),
            ("application/json;q=0.9,application/cbor;q=1", Watch, None),
            (list, List, PARTIAL),
            (one, Watch, protobuf(Shape::PartialObjectMetadata, Some(Shape::PartialObjectMetadata))),
            (one.split_once(',').unwrap().1, Get, PARTIAL),
            (tables, List, table(false)),
            (tables, Watch, table(false)),
            (tables.split_once(',').unwrap().1, Get, table(true)),
            ("application/yaml", Get, None),
            // Clauses with an unusable transform are passed over.
            ("application/json;as=Table;v=v9;g=meta.k8s.io, application/json", List, FULL),
            ("application/json;as=Pods;v=v1;g=meta.k8s.io, application/json", List, FULL),
            ("application/json;v=v1, application/json", List, FULL),
            ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,*/*", List, FULL),
            (or_table, List, protobuf(Shape::Full, None)),
            ("application/json;stream=foo,application/json", List, FULL),
            ("application/json;as=Table;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", List, PARTIAL),
            (
                "application/json; as=PartialObjectMetadataList ;g=meta.k8s.io; v=v1beta1",
                List,
                Some((Format::json(Shape::PartialObjectMetadataV1beta1), false)),
            ),
            // Qualities. Their comparison is not an order: a wildcard loses to a type of lower quality that follows it, and
            // wins otherwise.
            ("application/yaml;q=0.5,application/json;q=0.6", Get, FULL),
            ("application/json;q=0.5,application/yaml;q=0.6", Get, None),
            ("application/json;q=0", Get, FULL),
            ("*/*,application/yaml;q=0.1", Get, None),
            ("application/yaml;q=0.1,*/*", Get, FULL),
            ("application/json;pretty=1", Get, Some((Format::json(Shape::Full), true))),
            (
                "application/vnd.kubernetes.protobuf,application/json;pretty=1",
                Get,
                protobuf(Shape::Full, full).map(|(format, _)| (format, true)),
            ),
        ] {
            assert_eq!(accept(header, kind), expected, "{header}");
        }
    }

    #[test]
    fn a_status_is_negotiated_without_transforms() {
        let json = |indent| Some(StatusForm { encoding: Encoding::Json, indent });
        let protobuf = Some(StatusForm { encoding: Encoding::Protobuf, indent: false });
        let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1;pretty=1";
        for (header, expected) in [
            ("", json(false)),
            ("*/*", json(false)),
            ("application/*;pretty=1", json(true)),
            ("application/json;pretty=1", json(true)),
            ("application/json;stream=watch", json(false)),
            ("application/json;stream=x,application/vnd.kubernetes.protobuf;pretty=1", protobuf),
            ("application/xml", json(true)),
            (list, json(true)),
            (&format!("{list},application/json"), json(false)),
            (&format!("{list},application/vnd.kubernetes.protobuf"), protobuf),
            (&format!("{list},application/yaml"), None),
            ("application/json;profile=x", None),
            ("application/json;q=high", None),
        ] {
            assert_eq!(status(header), expected, "{header}");
        }
    }

    #[test]
    fn doubts_are_the_apiservers() {
        let [enough, many] = [12, 13].map(|count| vec!["application/json"; count].join(","));
        assert_ne!(accept(&enough, ReadKind::List), None);
        for header in [
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            "application/*",
            "*",
            "application / json",
            ",",
            "application/xml",
            "Application/JSON",
            "application/json;q=high",
            "application/json;sv=v1",
            "application/json;drop=metadata.managedFields",
            "application/json;stream=watch",
            "application/yaml;as=Table;v=v1;g=meta.k8s.io,application/json",
            many.as_str(),
        ] {
            assert_eq!(accept(header, ReadKind::List), None, "{header}");
        }
        let list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(accept(list, ReadKind::Watch), None);
    }
}
