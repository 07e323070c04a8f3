import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from informerd.v1 import objects_pb2 as _objects_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListInformersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListInformersResponse(_message.Message):
    __slots__ = ("informers",)
    INFORMERS_FIELD_NUMBER: _ClassVar[int]
    informers: _containers.RepeatedCompositeFieldContainer[Informer]
    def __init__(self, informers: _Optional[_Iterable[_Union[Informer, _Mapping]]] = ...) -> None: ...

class Informer(_message.Message):
    __slots__ = ("resource", "namespace", "label_selector", "field_selector", "encoding", "synced", "state", "last_error", "pinned", "objects", "bytes", "resource_version", "oldest_resource_version", "upstream_silence", "watchers", "events", "relists")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    LABEL_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    FIELD_SELECTOR_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    OLDEST_RESOURCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    UPSTREAM_SILENCE_FIELD_NUMBER: _ClassVar[int]
    WATCHERS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    RELISTS_FIELD_NUMBER: _ClassVar[int]
    resource: _objects_pb2.Resource
    namespace: str
    label_selector: str
    field_selector: str
    encoding: _objects_pb2.Encoding
    synced: bool
    state: str
    last_error: str
    pinned: bool
    objects: int
    bytes: int
    resource_version: str
    oldest_resource_version: str
    upstream_silence: _duration_pb2.Duration
    watchers: int
    events: int
    relists: int
    def __init__(self, resource: _Optional[_Union[_objects_pb2.Resource, _Mapping]] = ..., namespace: _Optional[str] = ..., label_selector: _Optional[str] = ..., field_selector: _Optional[str] = ..., encoding: _Optional[_Union[_objects_pb2.Encoding, str]] = ..., synced: _Optional[bool] = ..., state: _Optional[str] = ..., last_error: _Optional[str] = ..., pinned: _Optional[bool] = ..., objects: _Optional[int] = ..., bytes: _Optional[int] = ..., resource_version: _Optional[str] = ..., oldest_resource_version: _Optional[str] = ..., upstream_silence: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., watchers: _Optional[int] = ..., events: _Optional[int] = ..., relists: _Optional[int] = ...) -> None: ...

class FreshnessRequest(_message.Message):
    __slots__ = ("resource",)
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    resource: _objects_pb2.Resource
    def __init__(self, resource: _Optional[_Union[_objects_pb2.Resource, _Mapping]] = ...) -> None: ...

class FreshnessResponse(_message.Message):
    __slots__ = ("synced", "resource_version", "upstream_silence")
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_VERSION_FIELD_NUMBER: _ClassVar[int]
    UPSTREAM_SILENCE_FIELD_NUMBER: _ClassVar[int]
    synced: bool
    resource_version: str
    upstream_silence: _duration_pb2.Duration
    def __init__(self, synced: _Optional[bool] = ..., resource_version: _Optional[str] = ..., upstream_silence: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WatchInformersRequest(_message.Message):
    __slots__ = ("interval",)
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    interval: _duration_pb2.Duration
    def __init__(self, interval: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class WatchInformersResponse(_message.Message):
    __slots__ = ("informers", "stopped")
    INFORMERS_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    informers: _containers.RepeatedCompositeFieldContainer[Informer]
    stopped: _containers.RepeatedCompositeFieldContainer[Informer]
    def __init__(self, informers: _Optional[_Iterable[_Union[Informer, _Mapping]]] = ..., stopped: _Optional[_Iterable[_Union[Informer, _Mapping]]] = ...) -> None: ...
