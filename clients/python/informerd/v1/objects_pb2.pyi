import datetime

from google.protobuf import any_pb2 as _any_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Index(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INDEX_UNSPECIFIED: _ClassVar[Index]
    INDEX_NAMESPACE: _ClassVar[Index]
    INDEX_NODE_NAME: _ClassVar[Index]
    INDEX_OWNER_UID: _ClassVar[Index]

class Shape(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SHAPE_UNSPECIFIED: _ClassVar[Shape]
    SHAPE_FULL: _ClassVar[Shape]
    SHAPE_METADATA_ONLY: _ClassVar[Shape]
    SHAPE_MASKED: _ClassVar[Shape]

class Drop(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DROP_UNSPECIFIED: _ClassVar[Drop]
    DROP_MANAGED_FIELDS: _ClassVar[Drop]
    DROP_LAST_APPLIED: _ClassVar[Drop]

class Encoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENCODING_UNSPECIFIED: _ClassVar[Encoding]
    ENCODING_JSON: _ClassVar[Encoding]
    ENCODING_KUBE_PROTOBUF: _ClassVar[Encoding]
    ENCODING_ANY: _ClassVar[Encoding]
INDEX_UNSPECIFIED: Index
INDEX_NAMESPACE: Index
INDEX_NODE_NAME: Index
INDEX_OWNER_UID: Index
SHAPE_UNSPECIFIED: Shape
SHAPE_FULL: Shape
SHAPE_METADATA_ONLY: Shape
SHAPE_MASKED: Shape
DROP_UNSPECIFIED: Drop
DROP_MANAGED_FIELDS: Drop
DROP_LAST_APPLIED: Drop
ENCODING_UNSPECIFIED: Encoding
ENCODING_JSON: Encoding
ENCODING_KUBE_PROTOBUF: Encoding
ENCODING_ANY: Encoding

class Resource(_message.Message):
    __slots__ = ("group", "version", "resource")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    group: str
    version: str
    resource: str
    def __init__(self, group: _Optional[str] = ..., version: _Optional[str] = ..., resource: _Optional[str] = ...) -> None: ...

class Selection(_message.Message):
    __slots__ = ("resource", "filters", "shape", "mask", "drop", "encoding")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    resource: Resource
    filters: _containers.RepeatedCompositeFieldContainer[Filter]
    shape: Shape
    mask: _field_mask_pb2.FieldMask
    drop: _containers.RepeatedScalarFieldContainer[Drop]
    encoding: Encoding
    def __init__(self, resource: _Optional[_Union[Resource, _Mapping]] = ..., filters: _Optional[_Iterable[_Union[Filter, _Mapping]]] = ..., shape: _Optional[_Union[Shape, str]] = ..., mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., drop: _Optional[_Iterable[_Union[Drop, str]]] = ..., encoding: _Optional[_Union[Encoding, str]] = ...) -> None: ...

class Filter(_message.Message):
    __slots__ = ("namespace", "names", "label_selector", "field_selector", "index")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    FIELD_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    names: _containers.RepeatedScalarFieldContainer[str]
    label_selector: str
    field_selector: str
    index: _containers.RepeatedCompositeFieldContainer[IndexTerm]
    def __init__(self, namespace: _Optional[str] = ..., names: _Optional[_Iterable[str]] = ..., label_selector: _Optional[str] = ..., field_selector: _Optional[str] = ..., index: _Optional[_Iterable[_Union[IndexTerm, _Mapping]]] = ...) -> None: ...

class IndexTerm(_message.Message):
    __slots__ = ("index", "label", "field", "values")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    index: Index
    label: str
    field: str
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, index: _Optional[_Union[Index, str]] = ..., label: _Optional[str] = ..., field: _Optional[str] = ..., values: _Optional[_Iterable[str]] = ...) -> None: ...

class Consistency(_message.Message):
    __slots__ = ("any", "not_older_than", "exact", "consistent", "max_staleness")
    ANY_FIELD_NUMBER: _ClassVar[int]
    NOT_OLDER_THAN_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    CONSISTENT_FIELD_NUMBER: _ClassVar[int]
    MAX_STALENESS_FIELD_NUMBER: _ClassVar[int]
    any: bool
    not_older_than: str
    exact: str
    consistent: bool
    max_staleness: _duration_pb2.Duration
    def __init__(self, any: _Optional[bool] = ..., not_older_than: _Optional[str] = ..., exact: _Optional[str] = ..., consistent: _Optional[bool] = ..., max_staleness: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("resource", "namespace", "name", "consistency", "shape", "mask", "drop", "encoding")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    resource: Resource
    namespace: str
    name: str
    consistency: Consistency
    shape: Shape
    mask: _field_mask_pb2.FieldMask
    drop: _containers.RepeatedScalarFieldContainer[Drop]
    encoding: Encoding
    def __init__(self, resource: _Optional[_Union[Resource, _Mapping]] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ..., consistency: _Optional[_Union[Consistency, _Mapping]] = ..., shape: _Optional[_Union[Shape, str]] = ..., mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., drop: _Optional[_Iterable[_Union[Drop, str]]] = ..., encoding: _Optional[_Union[Encoding, str]] = ...) -> None: ...

class GetResponse(_message.Message):
    __slots__ = ("object", "encoding")
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    object: Object
    encoding: Encoding
    def __init__(self, object: _Optional[_Union[Object, _Mapping]] = ..., encoding: _Optional[_Union[Encoding, str]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("selection", "consistency")
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    CONSISTENCY_FIELD_NUMBER: _ClassVar[int]
    selection: Selection
    consistency: Consistency
    def __init__(self, selection: _Optional[_Union[Selection, _Mapping]] = ..., consistency: _Optional[_Union[Consistency, _Mapping]] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("header", "chunk")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: ListHeader
    chunk: ListChunk
    def __init__(self, header: _Optional[_Union[ListHeader, _Mapping]] = ..., chunk: _Optional[_Union[ListChunk, _Mapping]] = ...) -> None: ...

class ListHeader(_message.Message):
    __slots__ = ("resource_version", "encoding", "resume_token")
    RESOURCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    resource_version: str
    encoding: Encoding
    resume_token: bytes
    def __init__(self, resource_version: _Optional[str] = ..., encoding: _Optional[_Union[Encoding, str]] = ..., resume_token: _Optional[bytes] = ...) -> None: ...

class ListChunk(_message.Message):
    __slots__ = ("objects",)
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    objects: _containers.RepeatedCompositeFieldContainer[Object]
    def __init__(self, objects: _Optional[_Iterable[_Union[Object, _Mapping]]] = ...) -> None: ...

class Object(_message.Message):
    __slots__ = ("key", "object", "partial")
    KEY_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    key: Key
    object: bytes
    partial: bool
    def __init__(self, key: _Optional[_Union[Key, _Mapping]] = ..., object: _Optional[bytes] = ..., partial: _Optional[bool] = ...) -> None: ...

class Key(_message.Message):
    __slots__ = ("namespace", "name", "uid", "resource_version")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    name: str
    uid: str
    resource_version: str
    def __init__(self, namespace: _Optional[str] = ..., name: _Optional[str] = ..., uid: _Optional[str] = ..., resource_version: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("selection", "snapshot", "resume_token", "from_resource_version", "known", "bookmark_interval", "max_batch", "max_batch_delay", "conflate", "max_age")
    class KnownEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FROM_RESOURCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    BOOKMARK_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_DELAY_FIELD_NUMBER: _ClassVar[int]
    CONFLATE_FIELD_NUMBER: _ClassVar[int]
    MAX_AGE_FIELD_NUMBER: _ClassVar[int]
    selection: Selection
    snapshot: Consistency
    resume_token: bytes
    from_resource_version: str
    known: _containers.ScalarMap[str, str]
    bookmark_interval: _duration_pb2.Duration
    max_batch: int
    max_batch_delay: _duration_pb2.Duration
    conflate: bool
    max_age: _duration_pb2.Duration
    def __init__(self, selection: _Optional[_Union[Selection, _Mapping]] = ..., snapshot: _Optional[_Union[Consistency, _Mapping]] = ..., resume_token: _Optional[bytes] = ..., from_resource_version: _Optional[str] = ..., known: _Optional[_Mapping[str, str]] = ..., bookmark_interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., max_batch: _Optional[int] = ..., max_batch_delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., conflate: _Optional[bool] = ..., max_age: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("resume_token", "resource_version", "started", "events", "snapshot_end", "bookmark", "reset", "goodbye")
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_END_FIELD_NUMBER: _ClassVar[int]
    BOOKMARK_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    resume_token: bytes
    resource_version: str
    started: Started
    events: Events
    snapshot_end: SnapshotEnd
    bookmark: Bookmark
    reset: Reset
    goodbye: Goodbye
    def __init__(self, resume_token: _Optional[bytes] = ..., resource_version: _Optional[str] = ..., started: _Optional[_Union[Started, _Mapping]] = ..., events: _Optional[_Union[Events, _Mapping]] = ..., snapshot_end: _Optional[_Union[SnapshotEnd, _Mapping]] = ..., bookmark: _Optional[_Union[Bookmark, _Mapping]] = ..., reset: _Optional[_Union[Reset, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ...) -> None: ...

class Started(_message.Message):
    __slots__ = ("resumed", "encoding")
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    resumed: bool
    encoding: Encoding
    def __init__(self, resumed: _Optional[bool] = ..., encoding: _Optional[_Union[Encoding, str]] = ...) -> None: ...

class Events(_message.Message):
    __slots__ = ("events",)
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("type", "key", "object", "partial")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        TYPE_UNSPECIFIED: _ClassVar[Event.Type]
        TYPE_ADDED: _ClassVar[Event.Type]
        TYPE_MODIFIED: _ClassVar[Event.Type]
        TYPE_DELETED: _ClassVar[Event.Type]
    TYPE_UNSPECIFIED: Event.Type
    TYPE_ADDED: Event.Type
    TYPE_MODIFIED: Event.Type
    TYPE_DELETED: Event.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    type: Event.Type
    key: Key
    object: bytes
    partial: bool
    def __init__(self, type: _Optional[_Union[Event.Type, str]] = ..., key: _Optional[_Union[Key, _Mapping]] = ..., object: _Optional[bytes] = ..., partial: _Optional[bool] = ...) -> None: ...

class SnapshotEnd(_message.Message):
    __slots__ = ("count", "gone_uids")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    GONE_UIDS_FIELD_NUMBER: _ClassVar[int]
    count: int
    gone_uids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, count: _Optional[int] = ..., gone_uids: _Optional[_Iterable[str]] = ...) -> None: ...

class Bookmark(_message.Message):
    __slots__ = ("upstream_silence",)
    UPSTREAM_SILENCE_FIELD_NUMBER: _ClassVar[int]
    upstream_silence: _duration_pb2.Duration
    def __init__(self, upstream_silence: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Reset(_message.Message):
    __slots__ = ("reason",)
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[Reset.Reason]
        REASON_EXPIRED: _ClassVar[Reset.Reason]
        REASON_TOO_SLOW: _ClassVar[Reset.Reason]
        REASON_RELISTED: _ClassVar[Reset.Reason]
        REASON_STORE_REWOUND: _ClassVar[Reset.Reason]
        REASON_RESTARTED: _ClassVar[Reset.Reason]
    REASON_UNSPECIFIED: Reset.Reason
    REASON_EXPIRED: Reset.Reason
    REASON_TOO_SLOW: Reset.Reason
    REASON_RELISTED: Reset.Reason
    REASON_STORE_REWOUND: Reset.Reason
    REASON_RESTARTED: Reset.Reason
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: Reset.Reason
    def __init__(self, reason: _Optional[_Union[Reset.Reason, str]] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("reason", "retry_after", "error")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[Goodbye.Reason]
        REASON_DRAINING: _ClassVar[Goodbye.Reason]
        REASON_MAX_AGE: _ClassVar[Goodbye.Reason]
        REASON_REMOVED: _ClassVar[Goodbye.Reason]
        REASON_FAILED: _ClassVar[Goodbye.Reason]
        REASON_CONNECTION_AGE: _ClassVar[Goodbye.Reason]
    REASON_UNSPECIFIED: Goodbye.Reason
    REASON_DRAINING: Goodbye.Reason
    REASON_MAX_AGE: Goodbye.Reason
    REASON_REMOVED: Goodbye.Reason
    REASON_FAILED: Goodbye.Reason
    REASON_CONNECTION_AGE: Goodbye.Reason
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    reason: Goodbye.Reason
    retry_after: _duration_pb2.Duration
    error: Failure
    def __init__(self, reason: _Optional[_Union[Goodbye.Reason, str]] = ..., retry_after: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., error: _Optional[_Union[Failure, _Mapping]] = ...) -> None: ...

class SyncRequest(_message.Message):
    __slots__ = ("watch_id", "add", "remove", "credit")
    WATCH_ID_FIELD_NUMBER: _ClassVar[int]
    ADD_FIELD_NUMBER: _ClassVar[int]
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    watch_id: int
    add: AddWatch
    remove: RemoveWatch
    credit: Credit
    def __init__(self, watch_id: _Optional[int] = ..., add: _Optional[_Union[AddWatch, _Mapping]] = ..., remove: _Optional[_Union[RemoveWatch, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ...) -> None: ...

class AddWatch(_message.Message):
    __slots__ = ("watch", "credit")
    WATCH_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    watch: WatchRequest
    credit: Credit
    def __init__(self, watch: _Optional[_Union[WatchRequest, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ...) -> None: ...

class RemoveWatch(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Credit(_message.Message):
    __slots__ = ("frames", "bytes")
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    frames: int
    bytes: int
    def __init__(self, frames: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class SyncResponse(_message.Message):
    __slots__ = ("watch_id", "response")
    WATCH_ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    watch_id: int
    response: WatchResponse
    def __init__(self, watch_id: _Optional[int] = ..., response: _Optional[_Union[WatchResponse, _Mapping]] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    details: _containers.RepeatedCompositeFieldContainer[_any_pb2.Any]
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ..., details: _Optional[_Iterable[_Union[_any_pb2.Any, _Mapping]]] = ...) -> None: ...

class KubernetesStatus(_message.Message):
    __slots__ = ("json",)
    JSON_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    def __init__(self, json: _Optional[bytes] = ...) -> None: ...
