import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from informerd.v1 import objects_pb2 as _objects_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Why(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WHY_UNSPECIFIED: _ClassVar[Why]
    WHY_INITIAL: _ClassVar[Why]
    WHY_ADDED: _ClassVar[Why]
    WHY_MODIFIED: _ClassVar[Why]
    WHY_DELETED: _ClassVar[Why]
    WHY_RETRY: _ClassVar[Why]
    WHY_AFTER: _ClassVar[Why]
    WHY_RESYNC: _ClassVar[Why]
    WHY_RETURNED: _ClassVar[Why]
WHY_UNSPECIFIED: Why
WHY_INITIAL: Why
WHY_ADDED: Why
WHY_MODIFIED: Why
WHY_DELETED: Why
WHY_RETRY: Why
WHY_AFTER: Why
WHY_RESYNC: Why
WHY_RETURNED: Why

class WorkRequest(_message.Message):
    __slots__ = ("join", "done", "retry", "add_after", "forget", "resync", "capacity")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    ADD_AFTER_FIELD_NUMBER: _ClassVar[int]
    FORGET_FIELD_NUMBER: _ClassVar[int]
    RESYNC_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    join: JoinGroup
    done: ItemRef
    retry: ItemRef
    add_after: AddAfter
    forget: ItemRef
    resync: Resync
    capacity: Capacity
    def __init__(self, join: _Optional[_Union[JoinGroup, _Mapping]] = ..., done: _Optional[_Union[ItemRef, _Mapping]] = ..., retry: _Optional[_Union[ItemRef, _Mapping]] = ..., add_after: _Optional[_Union[AddAfter, _Mapping]] = ..., forget: _Optional[_Union[ItemRef, _Mapping]] = ..., resync: _Optional[_Union[Resync, _Mapping]] = ..., capacity: _Optional[_Union[Capacity, _Mapping]] = ...) -> None: ...

class JoinGroup(_message.Message):
    __slots__ = ("group", "selections", "capacity")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    SELECTIONS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    group: str
    selections: _containers.RepeatedCompositeFieldContainer[_objects_pb2.Selection]
    capacity: int
    def __init__(self, group: _Optional[str] = ..., selections: _Optional[_Iterable[_Union[_objects_pb2.Selection, _Mapping]]] = ..., capacity: _Optional[int] = ...) -> None: ...

class ItemRef(_message.Message):
    __slots__ = ("resource", "namespace", "name")
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    resource: _objects_pb2.Resource
    namespace: str
    name: str
    def __init__(self, resource: _Optional[_Union[_objects_pb2.Resource, _Mapping]] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class AddAfter(_message.Message):
    __slots__ = ("item", "delay")
    ITEM_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    item: ItemRef
    delay: _duration_pb2.Duration
    def __init__(self, item: _Optional[_Union[ItemRef, _Mapping]] = ..., delay: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Resync(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Capacity(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: int
    def __init__(self, keys: _Optional[int] = ...) -> None: ...

class WorkResponse(_message.Message):
    __slots__ = ("joined", "items", "synced", "goodbye")
    JOINED_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    SYNCED_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    joined: Joined
    items: Items
    synced: Synced
    goodbye: _objects_pb2.Goodbye
    def __init__(self, joined: _Optional[_Union[Joined, _Mapping]] = ..., items: _Optional[_Union[Items, _Mapping]] = ..., synced: _Optional[_Union[Synced, _Mapping]] = ..., goodbye: _Optional[_Union[_objects_pb2.Goodbye, _Mapping]] = ...) -> None: ...

class Joined(_message.Message):
    __slots__ = ("workers",)
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    workers: int
    def __init__(self, workers: _Optional[int] = ...) -> None: ...

class Items(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[Item]
    def __init__(self, items: _Optional[_Iterable[_Union[Item, _Mapping]]] = ...) -> None: ...

class Synced(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Item(_message.Message):
    __slots__ = ("ref", "object", "deleted", "encoding", "attempt", "why")
    REF_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    ref: ItemRef
    object: _objects_pb2.Object
    deleted: _objects_pb2.Object
    encoding: _objects_pb2.Encoding
    attempt: int
    why: _containers.RepeatedScalarFieldContainer[Why]
    def __init__(self, ref: _Optional[_Union[ItemRef, _Mapping]] = ..., object: _Optional[_Union[_objects_pb2.Object, _Mapping]] = ..., deleted: _Optional[_Union[_objects_pb2.Object, _Mapping]] = ..., encoding: _Optional[_Union[_objects_pb2.Encoding, str]] = ..., attempt: _Optional[int] = ..., why: _Optional[_Iterable[_Union[Why, str]]] = ...) -> None: ...
