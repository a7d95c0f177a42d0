#!/bin/sh
# Runs each fuzz target for so many seconds, on whatever toolchain is there: coverage needs no sanitizer, and so no nightly.
# What it finds stays in fuzz/artifacts, what it learned in fuzz/corpus.
set -eu
cd "$(dirname "$0")/.."
seconds="${1:-60}"
if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "missing: cargo-fuzz; install it with: cargo install cargo-fuzz --locked" >&2
    exit 1
fi
if ! command -v c++ >/dev/null 2>&1; then
    echo "missing: a C++ compiler, for libFuzzer; on Debian: apt-get install g++" >&2
    exit 1
fi
for target in $(cargo fuzz list); do
    echo "== $target"
    mkdir -p "fuzz/corpus/$target"
    # Longer input is only slower: nothing here counts beyond some kilobytes, but for the bound on headers.
    cargo fuzz run --sanitizer none "$target" "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
        -max_total_time="$seconds" -max_len=4096 -timeout=10 -print_final_stats=1
done
