# Two commands matter: `make demo` (or `cargo run --release -- demo`) and `make test`.

.PHONY: test demo build fmt clean-cache

# Everything that must hold: formatting, lints, the judge, every test. What it needs and lacks, it fetches.
test:
	@tests/run

build:
	cargo build --release

demo:
	cargo run --release -- demo

fmt:
	cargo fmt --all

# Forgets what `make test` keeps outside the checkout (build artefacts, the judge, tools it installed).
clean-cache:
	rm -rf "$${INFORMERD_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/informerd}"
