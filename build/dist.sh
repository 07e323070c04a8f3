#!/usr/bin/env bash
# Makes what a release has to download, beside the image and the chart.
#
#   build/dist.sh archive [--program FILE] DIRECTORY   on a machine of each architecture
#   build/dist.sh index DIRECTORY URL                  once, when the archives of all architectures are there
#
# archive writes DIRECTORY/informerd-VERSION-linux-ARCHITECTURE.tar.gz: the program and its licence. The program is what
# build/static.sh builds, unless FILE is to be packed. The same program gives the same bytes, whoever packs it and when.
# index writes checksums.txt, for `sha256sum --check`, and informerd.yaml, with which krew installs the program as a
# plugin of kubectl from archives that are to be found below URL.
set -euo pipefail
export LC_ALL=C

die() {
	printf 'build/dist.sh: %s\n' "$*" >&2
	exit 1
}

root=$(cd "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
version=v$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml" | head -n 1)
[ "$version" != v ] || die "Cargo.toml has no version"

archive() {
	local program='' architecture work name
	if [ "${1:-}" = --program ]; then
		program=${2:?--program needs a file}
		shift 2
	fi
	[ $# = 1 ] || die "usage: build/dist.sh archive [--program FILE] DIRECTORY"
	case $(uname -sm) in
	"Linux x86_64") architecture=amd64 ;;
	"Linux aarch64") architecture=arm64 ;;
	*) die "archives are made on Linux, x86_64 or aarch64, not on $(uname -sm)" ;;
	esac
	work=$(mktemp -d "${TMPDIR:-/tmp}/informerd-dist.XXXXXX")
	# shellcheck disable=SC2064
	trap "rm -rf '$work'" EXIT
	if [ -n "$program" ]; then
		install -m 0755 "$program" "$work/informerd"
	else
		"$root/build/static.sh" "$work/informerd"
	fi
	chmod 0755 "$work/informerd"
	install -m 0644 "$root/LICENSE" "$work/LICENSE"
	name=informerd-$version-linux-$architecture.tar.gz
	mkdir -p "$1"
	# Aside first: whoever looks finds all of it or nothing.
	tar --create --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --directory="$work" LICENSE informerd |
		gzip --best --no-name >"$1/$name.new"
	mv "$1/$name.new" "$1/$name"
	echo "$1/$name"
}

index() {
	[ $# = 2 ] || die "usage: build/dist.sh index DIRECTORY URL"
	local url=${2%/} name architecture sum
	cd "$1"
	compgen -G "informerd-$version-linux-*.tar.gz" >/dev/null || die "$1 has no archive of $version"
	sha256sum informerd-"$version"-linux-*.tar.gz >checksums.txt
	{
		cat <<-EOF
			# For krew: kubectl krew install --manifest=informerd.yaml
			apiVersion: krew.googlecontainertools.github.com/v1alpha2
			kind: Plugin
			metadata:
			  name: informerd
			spec:
			  version: $version
			  shortDescription: Share one watch cache among many clients
			  description: |
			    Runs informerd, which stands between a Kubernetes apiserver and many local clients: for each resource it keeps one
			    informer, and answers get, list and watch from it. \`kubectl informerd --kubeconfig FILE\` starts it on 127.0.0.1:8001,
			    \`kubectl informerd kubeconfig --write FILE\` writes a kubeconfig for its clients, \`kubectl informerd status\` shows what it
			    spares the apiserver, and \`kubectl informerd check\` tells whether it can run.
			  platforms:
		EOF
		while read -r sum name; do
			architecture=${name##*-linux-}
			cat <<-EOF
				  - selector:
				      matchLabels:
				        os: linux
				        arch: ${architecture%.tar.gz}
				    uri: $url/$name
				    sha256: $sum
				    bin: informerd
				    files:
				    - {from: informerd, to: .}
				    - {from: LICENSE, to: .}
			EOF
		done <checksums.txt
	} >informerd.yaml
}

case ${1:-} in
archive | index) "$@" ;;
*) die "usage: build/dist.sh archive [--program FILE] DIRECTORY | index DIRECTORY URL" ;;
esac
