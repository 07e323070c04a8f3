#!/usr/bin/env bash
# Builds informerd twice with build/static.sh and fails unless both files are equal, byte for byte. Each build is of a
# checkout of HEAD in a directory of its own, from nothing, with a target directory, a cargo home, a time zone, a locale
# and a umask of its own, and later than the other. What the compilers are is not varied: see Dockerfile.
#
#   build/compare.sh [--profile image|dev]
set -euo pipefail
cd "$(dirname -- "${BASH_SOURCE[0]}")/.."

# What differs is kept, to look at.
work=$(mktemp -d "${TMPDIR:-/tmp}/informerd-compare.XXXXXX")
trap 'rm -rf "$work"/one "$work"/two' EXIT
cargo_home=${CARGO_HOME:-$HOME/.cargo}

build() {
	local checkout=$work/$1/$2/informerd home=$work/$1/$3
	mkdir -p "$checkout" "$home"
	git archive HEAD | tar -x -C "$checkout"
	# What has been downloaded is unpacked anew.
	if [ -d "$cargo_home/registry/cache" ]; then
		mkdir "$home/registry"
		cp -R "$cargo_home/registry/index" "$cargo_home/registry/cache" "$home/registry/"
	fi
	(
		umask "$4"
		export TZ=$5 LC_ALL=$6 CARGO_HOME=$home CARGO_TARGET_DIR=$work/$1/built
		"$checkout/build/static.sh" "${@:7}" "$work/$1.informerd"
	)
	rm -rf "${work:?}/$1"
}

build one checkout cargo-home 022 UTC C "$@"
build two another/and/deeper home-of-cargo 077 Asia/Kathmandu C.UTF-8 "$@"
cd "$work"
sha256sum one.informerd two.informerd
cmp one.informerd two.informerd
echo "equal"
rm -rf "$work"
