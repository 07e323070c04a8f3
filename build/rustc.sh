#!/bin/sh
# What build/static.sh has cargo call for rustc. Build scripts and procedural macros, which no RUSTFLAGS reach, get the same
# names of directories as all else: what they were compiled from goes into the hashes of the crates that use them.
# shellcheck disable=SC2086
exec "$@" $REMAPPED
