"""What is read of a resource."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypedDict

from .v1 import objects_pb2 as api


class Selected(TypedDict, total=False):
    """What narrows a selection: the keyword arguments of `watch`, `awatch` and `Queue`."""

    namespace: str
    names: Sequence[str]
    #: A label selector.
    labels: str
    #: A field selector.
    fields: str
    #: Objects without spec and status.
    metadata_only: bool
    #: Leaves out metadata.managedFields. Such an object must not be written back with an update.
    without_managed_fields: bool


#: Without GROUP/ for the core group.
_IN_VERSION = re.compile("(?:(?P<group>[^/]+)/)?(?P<version>[^/]+)/(?P<resource>[^/.]+)")
#: As in kubectl, for the version that the cluster prefers.
_ANY_VERSION = re.compile(r"(?P<resource>[^/.]+)(?:\.(?P<group>[^/]+))?")


def selection(resource: str, selected: Selected) -> api.Selection:
    found = _IN_VERSION.fullmatch(resource) or _ANY_VERSION.fullmatch(resource)
    if not found:
        raise ValueError(
            f"{resource!r} is no resource: want one such as v1/pods, apps/v1/deployments or deployments.apps"
        )
    if unknown := selected.keys() - Selected.__annotations__.keys():
        raise TypeError(f"unknown: {', '.join(sorted(unknown))}")
    return api.Selection(
        resource=api.Resource(**found.groupdict("")),
        filters=[
            api.Filter(
                namespace=selected.get("namespace", ""),
                names=selected.get("names", ()),
                label_selector=selected.get("labels", ""),
                field_selector=selected.get("fields", ""),
            )
        ],
        shape=api.SHAPE_METADATA_ONLY if selected.get("metadata_only") else api.SHAPE_UNSPECIFIED,
        drop=[api.DROP_MANAGED_FIELDS] if selected.get("without_managed_fields") else [],
    )
