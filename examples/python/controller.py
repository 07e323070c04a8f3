"""A controller on informerd.v1.Queue: keeps the annotation example.com/keys of every selected ConfigMap at the number of
its keys. Any number of these processes share the work.

    python controller.py [--address 127.0.0.1:8001] [--group G] [--workers N] [--namespace N] [--selector L]
"""

import argparse
import concurrent.futures
import json
import queue
import sys
import time
import urllib.error
import urllib.request

import grpc

from informerd.v1 import objects_pb2 as objects
from informerd.v1 import queue_pb2 as api
from informerd.v1 import queue_pb2_grpc as rpc

# The same request will not fare better.
HOPELESS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)

OPTIONS = [
    ("grpc.max_receive_message_length", 16 << 20),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


def work(stub, arguments, pool):
    """One stream: while it lives, this process is a worker of its group. When it ends, what was in hand goes to others."""
    requests = queue.SimpleQueue()
    selection = objects.Selection(
        resource=objects.Resource(version="v1", resource="configmaps"),
        filters=[objects.Filter(namespace=arguments.namespace, label_selector=arguments.selector)],
    )
    join = api.JoinGroup(group=arguments.group, selections=[selection], capacity=arguments.workers)
    requests.put(api.WorkRequest(join=join))

    def handle(item):
        try:
            reconcile(item, arguments.address)
            requests.put(api.WorkRequest(done=item.ref))
        except Exception as error:  # whatever it is, the key comes again
            print(f"{item.ref.namespace}/{item.ref.name}, attempt {item.attempt}: {error}", file=sys.stderr)
            requests.put(api.WorkRequest(retry=item.ref))

    # The iterator ends with the stream: a None is put into it.
    try:
        for response in stub.Work(iter(requests.get, None)):
            for item in response.items.items:
                pool.submit(handle, item)  # never more than the capacity
            if response.HasField("goodbye"):
                return
    finally:
        requests.put(None)


def reconcile(item, address):
    """Brings the cluster from the state that is to the state that should be. Called twice, it does nothing the second time."""
    key = f"{item.ref.namespace}/{item.ref.name}"
    if not item.HasField("object"):
        print("gone", key, flush=True)
        return
    config_map = json.loads(item.object.object)
    keys = str(len(config_map.get("data") or {}))
    if (config_map["metadata"].get("annotations") or {}).get("example.com/keys") == keys:
        return
    # Writes go to the kube-apiserver, here through informerd's REST side.
    metadata = {"resourceVersion": item.object.key.resource_version, "annotations": {"example.com/keys": keys}}
    request = urllib.request.Request(
        f"http://{address}/api/v1/namespaces/{item.ref.namespace}/configmaps/{item.ref.name}",
        data=json.dumps({"metadata": metadata}).encode(),
        headers={"Content-Type": "application/merge-patch+json"},
        method="PATCH",
    )
    try:
        with urllib.request.urlopen(request, timeout=30):
            print("counted", key, keys, flush=True)
    except urllib.error.HTTPError as error:
        if error.code not in (404, 409):  # then it changed meanwhile, so it comes again
            raise


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--address", default="127.0.0.1:8001")
    arguments.add_argument("--group", default="key-counter", help="workers of one group share one queue")
    arguments.add_argument("--workers", type=int, default=4, help="keys that are worked on at once")
    arguments.add_argument("--namespace", default="")
    arguments.add_argument("--selector", default="")
    arguments = arguments.parse_args()
    pool = concurrent.futures.ThreadPoolExecutor(arguments.workers)
    with grpc.insecure_channel(arguments.address, OPTIONS) as channel:
        stub = rpc.QueueStub(channel)
        while True:
            try:
                work(stub, arguments, pool)
            except grpc.RpcError as error:
                if error.code() in HOPELESS:
                    sys.exit(error.details())
                print(error.details(), "- joining again", file=sys.stderr)
            time.sleep(1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
