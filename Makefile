# Two commands matter: `make demo` (or `cargo run --release -- demo`) and `make test`.

.PHONY: test check search demo build dist fmt site pictures advisories clean-cache

# Everything that must hold: formatting, lints, the judge, every test. What it needs and lacks, it fetches.
test:
	@tests/run

# Fast, and needs only Rust, a C compiler and make: formatting, lints, library tests, and the rules for imports, dependencies and docs.
check:
	cargo fmt --all -- --check
	cargo fmt --all --manifest-path clients/rust/Cargo.toml -- --check
	CUSTOM_LIBFUZZER_PATH=/nowhere cargo clippy --locked --workspace --all-targets -- -D warnings
	PROPTEST_RNG_SEED=1 cargo test --locked --workspace --exclude informerd-fuzz --lib --test rules

# Random inputs for an hour (INFORMERD_SEARCH_SECONDS): tests/README.md says what it looks for, and what it has found.
search:
	@tests/search

build:
	cargo build --release

demo:
	cargo run --release -- demo

# What a release has to download, for the architecture of this machine: the archive, what it is made from if cargo-cyclonedx is installed,
# the sums, and the manifest for krew, which looks for the archive below URL. PROGRAM=FILE packs a program that is built already.
DIST ?= target/dist
URL ?= file://$(abspath $(DIST))
dist:
	build/dist.sh archive $(if $(PROGRAM),--program $(PROGRAM)) $(DIST)
	@if command -v cargo-cyclonedx >/dev/null; then build/dist.sh sbom $(DIST); else echo "cargo-cyclonedx is missing: no SBOM" >&2; fi
	build/dist.sh index $(DIST) $(URL)

fmt:
	cargo fmt --all
	cargo fmt --all --manifest-path clients/rust/Cargo.toml

# The documentation as a site, in target/site.
site:
	docs/site

# The recording and the screenshots of README, anew; needs Chromium.
pictures:
	docs/pictures/make

# Known vulnerabilities of the dependencies. The database is fetched; without a network the one that was fetched last is used.
advisories:
	@command -v cargo-deny >/dev/null || { echo "cargo-deny is missing: cargo install --locked cargo-deny" >&2; exit 1; }
	cargo deny check advisories || cargo deny --offline check advisories

# Forgets what `make test` keeps outside the checkout (build artefacts, the judge, tools it installed).
clean-cache:
	rm -rf "$${INFORMERD_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/informerd}"
