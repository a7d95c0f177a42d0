#!/bin/sh
# Runs the integration tests on the servers of newer Debian releases, as root on Debian, and ends with one table.
# `make matrix` calls it after tests/prerequisites.sh. These variables change what it does:
#   PAIRS   which servers: the release of PostgreSQL, a slash, that of RabbitMQ; `machine` is what is installed here
#   ROOTS   where the releases' programs are kept, about 500 MB each; delete a folder to have it made anew
#   TESTS   only tests whose names hold this, such as check::
set -eu

target=${CARGO_TARGET_DIR:-target}
roots=${ROOTS:-$target/roots}
pairs=${PAIRS:-trixie/trixie sid/sid}
cargo=${CARGO:-cargo}
logs=$target/matrix

# Where this machine gets Debian's packages (Debian) or its security updates (Debian-Security) from.
mirror() {
    # shellcheck disable=SC2016 # apt-get replaces it, not the shell.
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' "Label: $1" | sort -u | head -n 1
}

# sources RELEASE: the lines that name all of a release.
sources() {
    debian=$(mirror Debian)
    if [ -z "$debian" ]; then
        echo "no Debian mirror in the sources of apt" >&2
        exit 1
    fi
    echo "deb $debian $1 main"
    # The unstable release is not updated, it is itself the update.
    [ "$1" != sid ] || return 0
    echo "deb $debian $1-updates main"
    security=$(mirror Debian-Security)
    [ -z "$security" ] || echo "deb $security $1-security main"
}

# The servers and what their scripts call are unpacked, not installed: no script of a package runs, no service starts,
# and nothing is mounted. The harness puts the folder's `usr` in place of the machine's, for the servers alone.
make_root() {
    root=$roots/$1
    [ ! -d "$root/usr" ] || return 0
    echo "making $root"
    lines=$(sources "$1")
    mkdir -p "$roots"
    rm -rf "$root.new"
    # Signatures are checked as ever. Only their age is not: a mirror may lag behind the unstable release.
    echo "$lines" | mmdebstrap --quiet --mode=root --variant=extract --format=directory \
        --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Check-Valid-Until "false"' \
        --include=postgresql,rabbitmq-server,coreutils,dash,grep,libc-bin,mawk,sed,util-linux \
        "$1" "$root.new" -
    mv "$root.new" "$root"
}

# root_of RELEASE: the folder, as the harness wants it, which is nothing for the machine itself.
root_of() {
    [ "$1" = machine ] || (cd "$roots/$1" && pwd)
}

suite() {
    "$cargo" test --locked --test it -- "$@"
}

if [ "$(id -u)" -ne 0 ]; then
    echo "only root can put another /usr in place of the machine's: run it as root" >&2
    exit 1
fi
[ -n "$(mirror Debian)" ] || apt-get update
for release in $(echo "$pairs" | tr '/' ' '); do
    [ "$release" = machine ] || make_root "$release"
done
mkdir -p "$logs"
# Some tests run the examples.
"$cargo" build --locked --examples
"$cargo" test --locked --test it --no-run

table='PostgreSQL RabbitMQ passed failed seconds'
status=0
for pair in $pairs; do
    OUTBOXD_TEST_POSTGRES_ROOT=$(root_of "${pair%/*}")
    OUTBOXD_TEST_RABBITMQ_ROOT=$(root_of "${pair#*/}")
    RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) * 2))}
    export OUTBOXD_TEST_POSTGRES_ROOT OUTBOXD_TEST_RABBITMQ_ROOT RUST_TEST_THREADS
    log=$logs/$(echo "$pair" | tr '/' '-').log
    # The servers themselves say what they are. Where they do not start, there is nothing to test.
    suite --nocapture servers:: >"$log" 2>&1 || { cat "$log" && exit 1; }
    versions=$(sed -n 's/.*servers: PostgreSQL \([^ ]*\), RabbitMQ \([^ ]*\)$/\1 \2/p' "$log")
    echo "testing on PostgreSQL and RabbitMQ $versions; all that is said: $log"
    begin=$(date +%s)
    # shellcheck disable=SC2086 # No word is no filter.
    suite ${TESTS:-} >"$log" 2>&1 || status=1
    seconds=$(($(date +%s) - begin))
    sed -n 's/^test \(.*\) \.\.\. FAILED$/  failed: \1/p' "$log"
    counts=$(sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed;.*/\1 \2/p' "$log")
    table="$table
$versions ${counts:-none ended} $seconds"
done

echo
echo "$table" | while read -r postgresql rabbitmq passed failed seconds; do
    printf '%-12s %-10s %8s %8s %8s\n' "$postgresql" "$rabbitmq" "$passed" "$failed" "$seconds"
done
exit "$status"
