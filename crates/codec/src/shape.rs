//! How objects and lists are to be written: the shape of an object, and the metadata of a list.

use informerd_meta::{Moment, ResourceVersion};

/// The shape in which a client requests an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shape {
    Full,
    /// `PartialObjectMetadata` of `meta.k8s.io/v1`; `PartialObjectMetadataList` in lists.
    PartialObjectMetadata,
    /// `PartialObjectMetadata` of `meta.k8s.io/v1beta1`.
    PartialObjectMetadataV1beta1,
    /// A row of a `Table`.
    Table(TableShape),
}

/// The parameters of a table request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableShape {
    /// Use `meta.k8s.io/v1beta1` instead of v1, also for the metadata in the rows.
    pub v1beta1: bool,
    pub include: Include,
    /// Omit the column definitions, as in every event of a watch after the first.
    pub no_headers: bool,
    /// The moment for which relative times in the cells are printed.
    pub now: Moment,
}

/// Which part of the object a row includes: the parameter `includeObject`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Include {
    None,
    #[default]
    Metadata,
    Object,
}

/// The metadata of a list to write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListMetaOut {
    pub rv: ResourceVersion,
    pub continue_token: Option<String>,
    pub remaining: Option<i64>,
    /// The selector of the shard that the list covers.
    pub shard: Option<String>,
    /// The total length in bytes of all items as [`super::Form::list_item`] writes them. Protobuf writes it before
    /// the items; JSON ignores it.
    pub items_len: u64,
}

// === impl Shape ===

impl Shape {
    /// Returns this shape with relative times computed as of now.
    pub fn as_of_now(self) -> Self {
        match self {
            Self::Table(shape) => Self::Table(TableShape { now: Moment::now(), ..shape }),
            other => other,
        }
    }

    /// Returns the shape of the events after the first event of a watch.
    pub fn after_first(self) -> Self {
        match self {
            Self::Table(shape) => Self::Table(TableShape { no_headers: true, ..shape }),
            other => other,
        }
    }

    /// Whether the output depends on the time at which it is written.
    pub fn tells_time(self) -> bool {
        matches!(self, Self::Table(_))
    }

    /// The table parameters of this shape. A form without rows is never asked for a table; it uses the default.
    pub(super) fn of_table(self) -> TableShape {
        match self {
            Self::Table(shape) => shape,
            _ => TableShape::default(),
        }
    }
}

// === impl TableShape ===

impl TableShape {
    /// The shape of the objects in the rows.
    pub(super) fn object_shape(self) -> Option<Shape> {
        match (self.include, self.v1beta1) {
            (Include::None, _) => None,
            (Include::Object, _) => Some(Shape::Full),
            (Include::Metadata, false) => Some(Shape::PartialObjectMetadata),
            (Include::Metadata, true) => Some(Shape::PartialObjectMetadataV1beta1),
        }
    }
}

// === impl Include ===

impl Include {
    /// Parses the parameter's value. Returns `None` for a value that the apiserver rejects.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "None" => Self::None,
            "" | "Metadata" => Self::Metadata,
            "Object" => Self::Object,
            _ => return None,
        })
    }
}
