#!/bin/sh
# version.sh VERSION: builds a judge of another version of Kubernetes, 1.30.14 for example, and prints its path as the last
# line of stdout. Its module is made from the one here: the versions in go.mod are replaced, and the module proxy is asked
# for everything that follows from them, so that the result is not pinned as the judge of CI is.
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
cache=${INFORMERD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/informerd}

die() { printf 'judge: %s\n' "$*" >&2; exit 1; }
[ $# = 1 ] || die "usage: version.sh VERSION"
version=${1#v}
case $version in 1.[0-9]*.[0-9]*) ;; *) die "$version is no version of Kubernetes, such as 1.30.14" ;; esac

module=$cache/judge/source-$version
mkdir -p "$module"
cp "$here"/*.go "$here/build.sh" "$here/go.sh" "$module"
rm "$module"/vectors*.go # They need the apiserver's packages as they are in the version of go.mod.
if [ ! -f "$module/ready" ] || [ "$here/go.mod" -nt "$module/ready" ]; then
	. "$here/go.sh"
	go=$(find_go "$here/go.mod") || die "cannot build"
	export GOWORK=off GOFLAGS=-mod=mod GOTOOLCHAIN=local
	cd "$module"
	rm -f go.sum ready
	printf 'module informerd.invalid/judge\n\n%s\n' "$(grep '^go ' "$here/go.mod")" >go.mod
	# Kubernetes names its own modules as folders of its repository, which no other module can use.
	"$go" mod download "k8s.io/kubernetes@v$version"
	theirs=$("$go" env GOMODCACHE)/cache/download/k8s.io/kubernetes/@v/v$version.mod
	staged=$(sed -n 's#^[[:space:]]*\(k8s.io/[a-z0-9-]*\) => ./staging/.*#\1#p' "$theirs" | sort -u)
	[ -n "$staged" ] || die "the go.mod of Kubernetes $version names no modules"
	for name in $staged; do
		"$go" mod edit -replace "$name=$name@v0.${version#1.}"
	done
	# The etcd that this version was made for.
	etcd=$(sed -n 's#^[[:space:]]*go.etcd.io/etcd/client/v3 \(v[0-9.]*\).*#\1#p' "$theirs" | head -n 1)
	"$go" mod edit -require "k8s.io/kubernetes@v$version" -require "go.etcd.io/etcd/client/v3@$etcd" \
		-require "go.etcd.io/etcd/server/v3@$etcd"
	"$go" mod tidy >&2
	touch ready
fi
exec "$module/build.sh"
