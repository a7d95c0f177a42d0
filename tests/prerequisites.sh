#!/bin/sh
# Checks what building and testing need, on Debian 12 or newer. As root it installs what is missing;
# otherwise it prints the line to run. It says nothing when nothing is missing. With the word `page`, also what the
# picture of the status page needs; with `matrix`, also what fetches newer servers.
set -eu

packages=
missing=

# need WHAT PACKAGE: remembers something that is missing, and the package that brings it.
need() {
    missing="$missing
  $1 (package $2)"
    packages="$packages $2"
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# Debian keeps the servers' programs out of PATH.
has_postgres() {
    for program in /usr/lib/postgresql/*/bin/postgres; do
        [ -x "$program" ] && [ -x "${program%/*}/initdb" ] && return 0
    done
    has postgres && has initdb
}

has_rabbitmq() {
    for program in /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server; do
        [ -x "$program" ] && return 0
    done
    has rabbitmq-server
}

has_postgres || need "the PostgreSQL server" postgresql
has_rabbitmq || need "the RabbitMQ broker" rabbitmq-server
has pgbouncer || [ -x /usr/sbin/pgbouncer ] || need "the PgBouncer pooler" pgbouncer
has cc || need "a C compiler and linker" gcc
# The linker needs the C library's own files, which a compiler without its recommended packages lacks.
[ -n "$(find /usr/include -maxdepth 2 -name stdio.h 2>/dev/null)" ] || need "the C library's headers" libc6-dev
has pkg-config || need "pkg-config" pkg-config
{ has pkg-config && pkg-config --exists openssl; } || [ -e /usr/include/openssl/ssl.h ] ||
    need "OpenSSL's headers" libssl-dev
has openssl || need "the openssl program" openssl
has setpriv || need "setpriv" util-linux
[ "${1:-}" != page ] || has chromium || need "the Chromium browser" "chromium fonts-dejavu-core"
[ "${1:-}" != matrix ] || has mmdebstrap || need "mmdebstrap" mmdebstrap
has promtool || need "promtool" prometheus
has systemd-analyze || need "systemd-analyze" systemd
has dpkg-deb && has strip || need "dpkg-deb and strip" "dpkg binutils"
has script || need "script" bsdutils

# A folder's name is in PATH only after the next login, so rustup's own folder is looked at too.
if ! has cargo && [ ! -x "${CARGO_HOME:-${HOME:-/root}/.cargo}/bin/cargo" ]; then
    echo "cargo is missing: install a Rust toolchain (1.85 or newer) from rustup.rs" >&2
    exit 1
fi

[ -n "$packages" ] || exit 0

echo "missing:$missing" >&2
install="apt-get install -y --no-install-recommends$packages"

if [ "$(id -u)" -ne 0 ]; then
    echo "install it with:" >&2
    echo "  sudo apt-get update && sudo $install" >&2
    exit 1
fi

if ! has apt-get; then
    echo "this system has no apt-get: install the above with its own package manager" >&2
    exit 1
fi

# The tests start servers of their own, so the packages must not start system services nor create a
# database cluster. Afterwards the machine has what it would have had without this script.
policy=/usr/sbin/policy-rc.d
cluster=/etc/postgresql-common/createcluster.conf
template=/usr/share/postgresql-common/createcluster.conf
made_policy=
made_cluster=

restore() {
    [ -z "$made_policy" ] || rm -f "$policy"
    if [ -n "$made_cluster" ]; then
        rm -f "$cluster"
        # The package would have made its own, had ours not been there.
        [ ! -e "$template" ] || cp "$template" "$cluster"
    fi
}
trap restore EXIT
trap 'exit 1' HUP INT TERM

if [ ! -e "$policy" ]; then
    made_policy=yes
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi
if [ ! -e "$cluster" ]; then
    made_cluster=yes
    mkdir -p "${cluster%/*}"
    echo "create_main_cluster = false" >"$cluster"
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update
# shellcheck disable=SC2086 # This is a list of words.
$install
