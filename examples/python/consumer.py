"""A consumer of informerd.v1.Objects: keeps the objects of one selection, and prints what changes.

    python consumer.py [--address 127.0.0.1:8001] [--namespace N] [--selector L] [GROUP/]VERSION/RESOURCE
"""

import argparse
import sys
import time

import grpc

from informerd.v1 import objects_pb2 as api
from informerd.v1 import objects_pb2_grpc as rpc

# The same request will not fare better.
HOPELESS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)

OPTIONS = [
    ("grpc.max_receive_message_length", 16 << 20),  # an object may be larger than gRPC's 4 MiB
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


class Consumer:
    def __init__(self, stub, selection):
        self.stub = stub
        self.selection = selection
        self.objects = {}  # (namespace, name) -> event; event.object is the object as JSON
        self.token = b""  # after the last frame
        self.snapshot = None  # what the snapshot had so far; None when none is under way

    def watch(self):
        """One watch, from the token on, until it ends. Everything that a correct consumer has to do is here."""
        request = api.WatchRequest(selection=self.selection)
        if self.token:
            request.resume_token = self.token
        for response in self.stub.Watch(request):
            frame = response.WhichOneof("frame")
            if frame == "started" and not response.started.resumed:
                self.snapshot = set()  # a whole snapshot follows
            elif frame == "reset":
                self.snapshot = set()  # likewise: something was missed
            elif frame == "events":
                for event in response.events.events:
                    self.apply(event)
            elif frame == "snapshot_end":
                for key in self.objects.keys() - self.snapshot:
                    say("DELETED", key, self.objects.pop(key).key.resource_version)  # not in the snapshot: gone
                self.snapshot = None
                print("SYNCED", len(self.objects), response.resource_version, flush=True)
            elif frame == "goodbye":
                self.token = response.resume_token
                return response.goodbye.retry_after.ToMilliseconds() / 1000
            self.token = response.resume_token  # after the frame was worked on, not before
        return 1

    def apply(self, event):
        key = (event.key.namespace, event.key.name)
        known = self.objects.get(key)
        if self.snapshot is not None:
            self.snapshot.add(key)
        # Over a reconnect the same may come twice.
        news = known is None or known.key.resource_version != event.key.resource_version
        if event.type == api.Event.TYPE_DELETED:
            news = known is not None
            self.objects.pop(key, None)
        else:
            self.objects[key] = event
        if news:
            say(api.Event.Type.Name(event.type).removeprefix("TYPE_"), key, event.key.resource_version)


def say(kind, key, resource_version):
    print(kind, "/".join(filter(None, key)), resource_version, flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--address", default="127.0.0.1:8001", help="where informerd listens; unix:///path for a socket")
    arguments.add_argument("--namespace", default="")
    arguments.add_argument("--selector", default="")
    arguments.add_argument("resource", help="such as v1/pods or apps/v1/deployments")
    arguments = arguments.parse_args()
    *group, version, resource = arguments.resource.split("/")
    selection = api.Selection(
        resource=api.Resource(group="".join(group), version=version, resource=resource),
        filters=[api.Filter(namespace=arguments.namespace, label_selector=arguments.selector)],
    )
    with grpc.insecure_channel(arguments.address, OPTIONS) as channel:
        consumer = Consumer(rpc.ObjectsStub(channel), selection)
        while True:
            try:
                wait = consumer.watch()
            except grpc.RpcError as error:
                if error.code() in HOPELESS:
                    sys.exit(error.details())
                print(error.details(), "- trying again", file=sys.stderr)
                wait = 1
            time.sleep(wait)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
