//! Renders an object in the form that a client requested.

use bytes::Bytes;

use crate::codec::json::Prune;
use crate::codec::protobuf::Without;
use crate::codec::{Form, Shape};
use crate::grpc::call::{Error, quotable};
use crate::grpc::pb::v1;
use crate::meta::{Damaged, Encoding, Object, ResourceVersion};

/// The parts of every object to write in a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::grpc) struct Rendering {
    shape: Shape,
    masked: bool,
    /// The parts of a JSON object to keep or to omit.
    prune: Option<Prune>,
    /// The parts of a protobuf object to omit.
    without: Without,
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Paths that are kept whatever the mask contains.
const IDENTITY: &[&[&str]] = &[
    &["kind"],
    &["apiVersion"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "resourceVersion"],
];
const MAX_PATHS: usize = 256;
/// The maximum length of a path in bytes. Each name in it is one level of a tree, which is built and walked
/// recursively.
const MAX_PATH: usize = 1024;

// === impl Rendering ===

impl Rendering {
    /// # Errors
    /// INVALID_ARGUMENT for a mask that is missing, too long or not requested, and for values that this version does
    /// not know.
    pub(super) fn new(shape: i32, mask: Option<&prost_types::FieldMask>, drop: &[i32]) -> Result<Self, Error> {
        let shape = v1::Shape::try_from(shape).map_err(|_| Error::invalid("the request names an unknown shape"))?;
        let paths = mask.map(|mask| mask.paths.as_slice()).unwrap_or_default();
        if (shape == v1::Shape::Masked) == paths.is_empty() {
            return Err(Error::invalid("a mask belongs to SHAPE_MASKED, which needs one"));
        }
        if paths.len() > MAX_PATHS {
            return Err(Error::invalid(format!("a mask has at most {MAX_PATHS} paths")));
        }
        let mut prune = Prune::default();
        let mut without = Without::default();
        let masked = shape == v1::Shape::Masked;
        if masked {
            for path in IDENTITY {
                prune.keep(path.iter().copied());
            }
            for path in paths {
                if path.len() > MAX_PATH {
                    return Err(Error::invalid(format!("a path of a mask has at most {MAX_PATH} bytes")));
                }
                let names =
                    split(path).ok_or_else(|| Error::invalid(format!("{:?} is no path of a mask", quotable(path))))?;
                prune.keep(names.iter().map(String::as_str));
            }
        }
        for part in drop {
            match v1::Drop::try_from(*part) {
                Ok(v1::Drop::ManagedFields) => {
                    prune.drop(["metadata", "managedFields"].into_iter());
                    without.managed_fields = true;
                }
                Ok(v1::Drop::LastApplied) => {
                    prune.drop(["metadata", "annotations", LAST_APPLIED].into_iter());
                    without.annotations = &[LAST_APPLIED];
                }
                Ok(v1::Drop::Unspecified) | Err(_) => {
                    return Err(Error::invalid("the request drops a part that is not known"));
                }
            }
        }
        let shape = match shape {
            v1::Shape::MetadataOnly => Shape::PartialObjectMetadata,
            v1::Shape::Unspecified | v1::Shape::Full | v1::Shape::Masked => Shape::Full,
        };
        Ok(Self { shape, masked, prune: (!prune.is_empty()).then_some(prune), without })
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    pub(super) fn needs_json(&self) -> bool {
        self.masked
    }

    /// Whether objects may lack parts because the client asked to omit them.
    pub(in crate::grpc) fn is_partial(&self) -> bool {
        self.prune.is_some() || self.shape != Shape::Full
    }

    /// The bytes of the object. `rv` replaces its resourceVersion.
    ///
    /// # Errors
    /// They are damaged.
    pub(in crate::grpc) fn bytes(
        &self,
        form: &Form,
        object: &Object,
        rv: Option<ResourceVersion>,
    ) -> Result<Bytes, Damaged> {
        let whole = form.object(object, rv, self.shape)?.into_bytes();
        // The object was parsed before, so this succeeds.
        Ok(match (&self.prune, form.encoding()) {
            (Some(prune), Encoding::Json) => prune.apply(&whole).map_or(whole, Bytes::from),
            (_, Encoding::Protobuf) if !self.without.is_nothing() => {
                self.without.apply(&whole).map_or(whole, Bytes::from)
            }
            _ => whole,
        })
    }

    /// # Errors
    /// Its bytes are damaged.
    pub(in crate::grpc) fn object(&self, form: &Form, object: &Object) -> Result<v1::Object, Damaged> {
        Ok(v1::Object {
            key: Some(key(object, object.rv)),
            object: self.bytes(form, object, None)?,
            partial: self.is_partial(),
        })
    }
}

pub(in crate::grpc) fn key(object: &Object, rv: ResourceVersion) -> v1::Key {
    v1::Key {
        namespace: object.key.namespace().to_owned(),
        name: object.key.name().to_owned(),
        uid: object.attributes.uid().to_owned(),
        resource_version: rv.to_string(),
    }
}

pub(in crate::grpc) fn encoding(encoding: Encoding) -> v1::Encoding {
    match encoding {
        Encoding::Json | Encoding::Table => v1::Encoding::Json,
        Encoding::Protobuf => v1::Encoding::KubeProtobuf,
    }
}

/// Splits a path into names. Dots separate names; a backslash escapes a dot or a backslash.
fn split(path: &str) -> Option<Vec<String>> {
    let mut names = vec![String::new()];
    let mut chars = path.chars();
    while let Some(c) = chars.next() {
        match c {
            '.' => names.push(String::new()),
            '\\' => names.last_mut()?.push(chars.next().filter(|c| matches!(c, '.' | '\\'))?),
            c => names.last_mut()?.push(c),
        }
    }
    names.iter().all(|name| !name.is_empty()).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        assert_eq!(split("spec.nodeName").unwrap(), ["spec", "nodeName"]);
        assert_eq!(split(r"metadata.labels.app\.kubernetes\.io/name").unwrap()[2], "app.kubernetes.io/name");
        for bad in ["", ".a", "a.", "a..b", r"a\", r"a\b"] {
            assert_eq!(split(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn paths_are_bounded() {
        let masked = |path: String| {
            let mask = prost_types::FieldMask { paths: vec![path] };
            Rendering::new(v1::Shape::Masked as i32, Some(&mask), &[]).map(drop)
        };
        assert_eq!(masked(["a"; MAX_PATH / 2].join(".") + "b"), Ok(()));
        assert!(masked(["a"; MAX_PATH / 2].join(".") + "bb").is_err());
        let some = |count: usize| prost_types::FieldMask { paths: vec!["a".to_owned(); count] };
        let is_read = |mask| Rendering::new(v1::Shape::Masked as i32, Some(&mask), &[]).is_ok();
        assert!([some(MAX_PATHS), some(MAX_PATHS + 1)].map(is_read) == [true, false]);
        let refused = masked(["a"; 1 << 20].join(".")).unwrap_err();
        assert!(format!("{refused:?}").len() < 1000, "the path is not said again");
    }

    #[test]
    fn a_mask_belongs_to_its_shape() {
        let mask = prost_types::FieldMask { paths: vec!["spec".to_owned()] };
        assert!(Rendering::new(v1::Shape::Masked as i32, Some(&mask), &[]).unwrap().is_partial());
        assert!(Rendering::new(v1::Shape::Masked as i32, None, &[]).is_err());
        assert!(Rendering::new(v1::Shape::Full as i32, Some(&mask), &[]).is_err());
        assert!(Rendering::new(77, None, &[]).is_err());
        assert!(Rendering::new(0, None, &[77]).is_err());
        assert!(!Rendering::new(0, None, &[]).unwrap().is_partial());
    }
}
