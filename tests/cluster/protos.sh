#!/bin/sh
# Prints the directories of the modules that define the messages of Kubernetes, one a line, in the versions that the judge is
# built from. Needs Go, and the Go module proxy for what is not in its cache.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
cd "$here"
. ./go.sh
go=$(find_go go.mod) || exit 1
export GOFLAGS=-mod=readonly GOTOOLCHAIN=local GOWORK=off
modules="k8s.io/api k8s.io/apiextensions-apiserver k8s.io/apimachinery k8s.io/kube-aggregator k8s.io/metrics"
# shellcheck disable=SC2086 # each is a word
"$go" mod download -json $modules | sed -n 's#^[[:space:]]*"Dir": "\(.*\)",*$#\1#p'
