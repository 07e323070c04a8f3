#!/bin/sh
# Generates the stubs of informerd.v1 into informerd/v1. Needs protoc, protoc-gen-go and protoc-gen-go-grpc on PATH; in this
# directory:
#
#   go install google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
#
# PROTOC may name another protoc, such as the one of Python's grpcio-tools: PROTOC="python3 -m grpc_tools.protoc".
set -eu
cd "$(dirname "$0")"
${PROTOC:-protoc} -I ../../proto \
	--go_out=. --go_opt=module=informerd.io/go \
	--go-grpc_out=. --go-grpc_opt=module=informerd.io/go \
	informerd/v1/objects.proto informerd/v1/queue.proto informerd/v1/cache.proto
