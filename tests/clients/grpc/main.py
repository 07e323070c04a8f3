"""Prints what informerd.v1.Objects says of one selection, object bytes and all: every event of a watch from --from on
until the object named "last" comes, and then a list. After every --cut events the call is dropped and resumed by its token.
"""

import argparse
import base64

import grpc
from informerd.v1 import objects_pb2 as api
from informerd.v1.objects_pb2_grpc import ObjectsStub


def say(what, key, data):
    print(f"{what} {key.namespace}/{key.name}@{key.resource_version} {base64.b64encode(data).decode()}")


def watch(stub, request, wanted, cut):
    """One call; what resumes it, or nothing when the last object has come."""
    call = stub.Watch(request)
    seen = 0
    for response in call:
        frame = response.WhichOneof("frame")
        if frame == "started":
            assert response.started.resumed and response.started.encoding == wanted, response
        elif frame == "events":
            for event in response.events.events:
                say(api.Event.Type.Name(event.type).removeprefix("TYPE_"), event.key, event.object)
                seen += 1
            if any(event.key.name == "last" for event in response.events.events):
                return None
            if cut and seen >= cut:
                call.cancel()
                return api.WatchRequest(selection=request.selection, resume_token=response.resume_token)
        else:
            assert frame == "bookmark", response
    raise AssertionError("the watch has ended")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--address")
    parser.add_argument("--namespace", default="")
    parser.add_argument("--selector", default="")
    parser.add_argument("--encoding", default="JSON")
    parser.add_argument("--from", dest="since")
    parser.add_argument("--cut", type=int, default=0)
    parser.add_argument("resource")
    arguments = parser.parse_args()
    stub = ObjectsStub(grpc.insecure_channel(arguments.address))
    wanted = api.Encoding.Value(f"ENCODING_{arguments.encoding}")
    selection = api.Selection(
        resource=api.Resource(version="v1", resource=arguments.resource),
        filters=[api.Filter(namespace=arguments.namespace, label_selector=arguments.selector)],
        encoding=wanted,
    )
    request = api.WatchRequest(selection=selection, from_resource_version=arguments.since)
    while request:
        request = watch(stub, request, wanted, arguments.cut)
    parts = stub.List(api.ListRequest(selection=selection, consistency=api.Consistency(consistent=True)))
    assert next(parts).header.encoding == wanted
    for part in parts:
        for item in part.chunk.objects:
            say("STATE", item.key, item.object)


main()
