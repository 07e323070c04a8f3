#!/bin/sh
# Builds kube-controller-manager and kube-scheduler of the judge's version of Kubernetes, and prints the path of the one
# binary that is both as the last line of stdout. Its module is made from the judge's, whose go.mod has nothing of what
# only these two need: the module proxy is asked for that, and the versions follow from Kubernetes' own.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
judge=$here/../../../tests/cluster
module=${INFORMERD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/informerd}/judge/controllers
mkdir -p "$module"
cp "$here/main.go" "$judge/go.mod" "$judge/go.sum" "$judge/go.sh" "$judge/build.sh" "$module"
cd "$module"
. ./go.sh
go=$(find_go go.mod) || exit 1
GOWORK=off GOFLAGS=-mod=mod GOTOOLCHAIN=local "$go" mod tidy >&2
exec ./build.sh
