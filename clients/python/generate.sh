#!/bin/sh
# Generates the stubs of informerd.v1 into informerd/v1. Needs what requirements.txt names; PYTHON may name another python.
set -eu
cd "$(dirname "$0")"
${PYTHON:-python3} -m grpc_tools.protoc -I ../../proto --python_out=. --pyi_out=. --grpc_python_out=. \
	informerd/v1/objects.proto informerd/v1/queue.proto informerd/v1/cache.proto
