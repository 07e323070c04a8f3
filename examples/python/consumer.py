"""Prints the objects of one selection, and then every change of them.

    python consumer.py [--namespace N] [--selector L] [GROUP/]VERSION/RESOURCE
"""

import argparse
import sys

import informerd


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--namespace", default="")
    arguments.add_argument("--selector", default="", help="label selector")
    arguments.add_argument("resource", help="such as v1/pods or apps/v1/deployments")
    asked = arguments.parse_args()
    try:
        for event in informerd.watch(asked.resource, namespace=asked.namespace, labels=asked.selector):
            print(event.type, event.key, event.key.resource_version, flush=True)
    except informerd.InformerdError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
