"""Keeps the annotation example.com/keys of every selected ConfigMap at the number of its keys. Any number of these processes
share the work.

    python controller.py [--group G] [--workers N] [--namespace N] [--selector L]
"""

import argparse
import json
import ssl
import sys
import urllib.error
import urllib.request

import informerd


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--group", default="key-counter", help="workers of one group share one queue")
    arguments.add_argument("--workers", type=int, default=4, help="keys that are worked on at once")
    arguments.add_argument("--namespace", default="")
    arguments.add_argument("--selector", default="", help="label selector")
    asked = arguments.parse_args()
    server = informerd.find()
    trust = ssl.create_default_context(cafile=server.ca_file) if server.address.startswith("https:") else None

    def reconcile(item: informerd.Item) -> None:
        """Brings the cluster from the state that is to the state that should be. Called twice, it does nothing the second
        time."""
        if item.object is None:
            print("gone", item.key, flush=True)
            return
        metadata = item.object["metadata"]
        keys = str(len(item.object.get("data") or {}))
        if (metadata.get("annotations") or {}).get("example.com/keys") == keys:
            return
        # Writes go to the kube-apiserver, here through informerd's REST side.
        patch = {"resourceVersion": metadata["resourceVersion"], "annotations": {"example.com/keys": keys}}
        request = urllib.request.Request(
            f"{server.address}/api/v1/namespaces/{item.namespace}/configmaps/{item.name}",
            data=json.dumps({"metadata": patch}).encode(),
            headers={"Content-Type": "application/merge-patch+json", **dict(server.metadata())},
            method="PATCH",
        )
        try:
            with urllib.request.urlopen(request, timeout=30, context=trust):
                print("counted", item.key, keys, flush=True)
        except urllib.error.HTTPError as error:
            if error.code not in (404, 409):  # Then it changed meanwhile, so it comes again.
                raise

    queue = informerd.Queue(
        asked.group, "v1/configmaps", reconcile,
        workers=asked.workers, namespace=asked.namespace, labels=asked.selector, server=server,
    )  # fmt: skip
    try:
        queue.run()
    except informerd.InformerdError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
