"""Informers on the official Python client, in the three ways its users write them.

Prints what they see in the lines of `judge informer`: a JSON object per event, SYNCED, and STATE on a line on stdin.
"""

import argparse
import json
import logging
import sys
import threading

import kubernetes
from kubernetes.client import ApiException
from kubernetes.informer import SharedInformer
from kubernetes.watch import Watch

LISTS = {
    "v1/pods": ("CoreV1Api", "pod"),
    "v1/configmaps": ("CoreV1Api", "config_map"),
}

output = threading.Lock()


class Printer:
    """One informer's events and state."""

    def __init__(self, index):
        self.index = index
        self.items = {}
        self.lock = threading.Lock()

    def say(self, **line):
        with output:
            sys.stdout.write(json.dumps({"i": self.index, **line}) + "\n")
            sys.stdout.flush()

    def event(self, kind, meta, initial=False):
        key = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
        with self.lock:
            if kind == "DELETED":
                self.items.pop(key, None)
            else:
                self.items[key] = meta.resource_version
        self.say(t=kind, key=key, uid=meta.uid, rv=meta.resource_version, initial=initial)

    def state(self):
        with self.lock:
            self.say(t="STATE", items=self.items)


def list_then_watch(out, list_function, arguments):
    """The loop of the documentation: a list, and watches from where the last one ended."""
    listed = list_function(**arguments)
    for item in listed.items:
        out.event("ADDED", item.metadata, initial=True)
    out.say(t="SYNCED")
    version = listed.metadata.resource_version
    while True:
        try:
            # A short watch, so that the test sees it resumed.
            for event in Watch().stream(list_function, resource_version=version, timeout_seconds=5, **arguments):
                out.event(event["type"], event["object"].metadata)
                version = event["object"].metadata.resource_version
        except ApiException as error:
            out.say(t="ERROR", message=str(error))
            return


def watch_only(out, list_function, arguments):
    """A watch without a resourceVersion: what is there comes first, in no order and without an end mark."""
    out.say(t="SYNCED")
    try:
        for event in Watch().stream(list_function, **arguments):
            out.event(event["type"], event["object"].metadata)
    except Exception as error:
        out.say(t="ERROR", message=str(error))
    out.say(t="ERROR", message="the watch has ended")


def shared_informer(out, list_function, arguments):
    """The informer that the client has since its version 36."""
    informer = SharedInformer(list_function, **arguments)
    synced = threading.Event()
    for kind in "ADDED", "MODIFIED", "DELETED":
        handler = lambda item, kind=kind: out.event(kind, item.metadata, initial=not synced.is_set())
        informer.add_event_handler(kind, handler)
    informer.add_event_handler("ERROR", lambda error: out.say(t="ERROR", message=str(error)))
    initial_list = informer._initial_list

    def list_once():
        initial_list()
        synced.set()
        out.say(t="SYNCED")

    # It tells nobody when it has synced.
    informer._initial_list = list_once
    informer.start()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", help="without it, the in-cluster configuration")
    parser.add_argument("--resource", choices=sorted(LISTS), required=True)
    parser.add_argument("--namespace")
    parser.add_argument("--label-selector")
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)

    if options.kubeconfig:
        kubernetes.config.load_kube_config(options.kubeconfig)
    else:
        kubernetes.config.load_incluster_config()
    api, noun = LISTS[options.resource]
    scope = f"list_namespaced_{noun}" if options.namespace else f"list_{noun}_for_all_namespaces"
    arguments = {"namespace": options.namespace, "label_selector": options.label_selector}
    arguments = {name: value for name, value in arguments.items() if value}

    printers = []
    for index, run in enumerate((list_then_watch, watch_only, shared_informer)):
        out = Printer(index)
        printers.append(out)
        # A client, and so connections, of its own.
        list_function = getattr(getattr(kubernetes.client, api)(), scope)
        threading.Thread(target=run, args=(out, list_function, arguments), daemon=True).start()

    if not sys.stdin.readline():
        sys.exit("stdin was closed")
    for out in printers:
        out.state()


if __name__ == "__main__":
    main()
