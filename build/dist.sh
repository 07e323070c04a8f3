#!/usr/bin/env bash
# Makes what a release has to download, beside the image and the chart.
#
#   build/dist.sh version                              prints it
#   build/dist.sh archive [--program FILE] DIRECTORY   on a machine of each architecture
#   build/dist.sh sbom DIRECTORY                       the same
#   build/dist.sh index DIRECTORY URL                  once, when the files of all architectures are there
#
# archive writes DIRECTORY/informerd-VERSION-linux-ARCHITECTURE.tar.gz: the program, its licence, and its manual pages in
# man/man1, as the program prints them. The program is what build/static.sh builds, unless FILE is to be packed. The same program gives the same bytes, whoever packs it and when.
# sbom writes DIRECTORY/informerd-VERSION-linux-ARCHITECTURE.cdx.json, what the program of HEAD is made from, by cargo-cyclonedx.
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

architecture() {
	case $(uname -sm) in
	"Linux x86_64") echo amd64 ;;
	"Linux aarch64") echo arm64 ;;
	*) die "releases are made on Linux, x86_64 or aarch64, not on $(uname -sm)" ;;
	esac
}

# A directory that is gone at the end.
aside() {
	work=$(mktemp -d "${TMPDIR:-/tmp}/informerd-dist.XXXXXX")
	trap 'rm -rf "$work"' EXIT
}

archive() {
	local program='' architecture name
	if [ "${1:-}" = --program ]; then
		program=${2:?--program needs a file}
		shift 2
	fi
	[ $# = 1 ] || die "usage: build/dist.sh archive [--program FILE] DIRECTORY"
	architecture=$(architecture)
	aside
	if [ -n "$program" ]; then
		install -m 0755 "$program" "$work/informerd"
	else
		"$root/build/static.sh" "$work/informerd"
	fi
	chmod 0755 "$work/informerd"
	install -m 0644 "$root/LICENSE" "$work/LICENSE"
	"$work/informerd" man --directory "$work/man/man1" || die "the program has written no manual pages"
	chmod -R u=rwX,go=rX "$work/man"
	name=informerd-$version-linux-$architecture.tar.gz
	mkdir -p "$1"
	# Aside first: whoever looks finds all of it or nothing.
	tar --create --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --directory="$work" LICENSE informerd man |
		gzip --best --no-name >"$1/$name.new"
	mv "$1/$name.new" "$1/$name"
	echo "$1/$name"
}

sbom() {
	[ $# = 1 ] || die "usage: build/dist.sh sbom DIRECTORY"
	local name architecture
	architecture=$(architecture)
	cargo cyclonedx --version >/dev/null 2>&1 || die "cargo-cyclonedx is missing: cargo install --locked cargo-cyclonedx"
	name=informerd-$version-linux-$architecture.cdx.json
	aside
	git -C "$root" archive HEAD | tar --extract --directory="$work"
	# As build/static.sh builds it. It is written beside Cargo.toml, with the names of directories.
	(cd "$work" && SOURCE_DATE_EPOCH=0 cargo cyclonedx --quiet --format json --spec-version 1.5 --no-build-deps \
		--no-default-features --target "$(uname -m)-unknown-linux-musl" --override-filename sbom)
	mkdir -p "$1"
	sed "s#$work#/informerd#g" "$work/sbom.json" >"$1/$name.new"
	mv "$1/$name.new" "$1/$name"
	echo "$1/$name"
}

index() {
	[ $# = 2 ] || die "usage: build/dist.sh index DIRECTORY URL"
	local url=${2%/} name architecture sum
	cd "$1"
	compgen -G "informerd-$version-linux-*.tar.gz" >/dev/null || die "$1 has no archive of $version"
	sha256sum informerd-* >checksums.txt
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
		grep -- '-linux-.*\.tar\.gz$' checksums.txt | while read -r sum name; do
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
		done
	} >informerd.yaml
}

case ${1:-} in
version) echo "$version" ;;
archive | sbom | index) "$@" ;;
*) die "usage: build/dist.sh version | archive [--program FILE] DIRECTORY | sbom DIRECTORY | index DIRECTORY URL" ;;
esac
