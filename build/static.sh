#!/usr/bin/env bash
# Builds informerd as one file that needs nothing beside it: linked statically with musl, whose resolver reads
# /etc/resolv.conf and /etc/hosts by itself. The image (see Dockerfile) and the tests are built by this script.
#
#   build/static.sh [--profile image|dev] FILE
#
# FILE is written. The same sources give the same bytes wherever the checkout, the cargo home and the target directory
# are: versions come from Cargo.lock and rust-toolchain.toml, and paths are left out.
set -euo pipefail

die() {
	printf 'build/static.sh: %s\n' "$*" >&2
	exit 1
}

profile=image
fast=()
if [ "${1:-}" = --profile ]; then
	profile=${2:-}
	shift 2 || die "--profile needs a name"
fi
[ $# = 1 ] || die "usage: build/static.sh [--profile image|dev] FILE"
case $profile in
image) directory=image ;;
dev)
	directory=debug
	# For tests of what the image has, not of its speed: compiled in half the time.
	fast=(--config 'profile.dev.package."*".opt-level=0' --config 'profile.dev.debug=false')
	;;
*) die "no such profile: $profile" ;;
esac
case $1 in
/*) output=$1 ;;
*) output=$PWD/$1 ;;
esac
cd "$(dirname -- "${BASH_SOURCE[0]}")/.."
root=$PWD

case $(uname -sm) in
"Linux x86_64") target=x86_64-unknown-linux-musl ;;
"Linux aarch64") target=aarch64-unknown-linux-musl ;;
*) die "images are built on Linux, x86_64 or aarch64, not on $(uname -sm)" ;;
esac

command -v cargo >/dev/null 2>&1 || die "cargo is missing: install a Rust toolchain from https://rustup.rs"
command -v musl-gcc >/dev/null 2>&1 || die "musl-gcc is missing (Debian: apt-get install musl-tools)"
libraries=$(rustc --print sysroot)/lib/rustlib/$target
if [ ! -d "$libraries" ]; then
	command -v rustup >/dev/null 2>&1 || die "this Rust has no $target, and there is no rustup to add it"
	rustup target add "$target" >&2 || die "rustup cannot add $target"
fi

cargo_home=${CARGO_HOME:-$HOME/.cargo}
build=${CARGO_TARGET_DIR:-$root/target}
variable=$(printf %s "$target" | tr - _)
export "CC_$variable=musl-gcc"
# Compilers are given a directory by its name or, where a link is on the way, by what that leads to.
map() {
	local real
	real=$(realpath --canonicalize-missing -- "$1")
	printf '%s=%s\n' "$1" "$2"
	[ "$real" = "$1" ] || printf '%s=%s\n' "$real" "$2"
}
mapfile -t maps < <(map "$cargo_home" /cargo && map "$cargo_home/registry" /cargo/registry && map "$build" /target && map "$root" /informerd)
flags=$(printf -- '-ffile-prefix-map=%s ' "${maps[@]}")
export "CFLAGS_$variable=$flags"
export CARGO_INCREMENTAL=0
export RUSTFLAGS="-C target-feature=+crt-static -C link-arg=-Wl,--build-id=none"
REMAPPED=$(printf -- '--remap-path-prefix=%s ' "${maps[@]}")
export REMAPPED RUSTC_WRAPPER=$root/build/rustc.sh

# Without default features: an image has no use for the simulated cluster of the demo.
cargo "${fast[@]}" build --locked --no-default-features --profile "$profile" --target "$target" --bin informerd >&2

built=$build/$target/$directory/informerd
# A program that asks for an interpreter is not static, whatever the target is called.
if LC_ALL=C readelf --program-headers "$built" | grep -q INTERP; then
	die "$built is not static: it needs a dynamic loader"
fi
mkdir -p "$(dirname -- "$output")"
strip --strip-all -o "$output.new" "$built"
mv "$output.new" "$output"
