#!/bin/sh
# Generates the stubs of informerd.v1, and of the details of its errors, into src/generated. Needs protoc and the definitions
# of google/rpc, for both of which there is a Python package each (clients/python/requirements.txt), and protoc-gen-es, which
# `npm ci` installs here. PYTHON may name another python, PLUGIN another protoc-gen-es.
set -eu
cd "$(dirname "$0")"
python=${PYTHON:-python3}
google=$("$python" -c 'import os, google.rpc; print(os.path.dirname(os.path.dirname(os.path.abspath(google.rpc.__path__[0]))))')
mkdir -p src/generated
"$python" -m grpc_tools.protoc -I ../../proto -I "$google" --plugin="${PLUGIN:-node_modules/.bin/protoc-gen-es}" \
	--es_out=src/generated --es_opt=target=ts,import_extension=js \
	informerd/v1/objects.proto informerd/v1/queue.proto informerd/v1/cache.proto google/rpc/status.proto google/rpc/error_details.proto
