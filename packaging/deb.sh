#!/bin/sh
# Builds the Debian package, and prints its path. Run it in the repository's folder.
#
#   BINARY       what to pack (target/release/outboxd)
#   OUT          the folder where the package goes (target)
#   COMPRESSION  xz, gzip, zstd or none (xz)
#   MAINTAINER   the control file's Maintainer
#
# The same sources, binary and time (SOURCE_DATE_EPOCH, else that of the last commit) make the same package.
set -eu
umask 022

target=${CARGO_TARGET_DIR:-target}
binary=${BINARY:-$target/release/outboxd}
out=${OUT:-$target}
maintainer=${MAINTAINER:-outboxd <root@localhost>}
[ -x "$binary" ] || {
    echo "deb.sh: there is no $binary: run make build, or say BINARY=..." >&2
    exit 1
}

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1 | tr - '~')
architecture=$(dpkg --print-architecture)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH="$epoch"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
root=$work/root
doc=$root/usr/share/doc/outboxd

install -d "$root/DEBIAN" "$root/usr/bin" "$root/usr/lib/systemd/system" "$doc/examples"
install -d -m 750 "$root/etc/outboxd"
install -m 755 "$binary" "$root/usr/bin/outboxd"
install -m 644 packaging/outboxd.service packaging/outboxd-once.service packaging/outboxd.timer \
    "$root/usr/lib/systemd/system"
# It may come to hold passwords.
install -m 640 packaging/outboxd.toml "$root/etc/outboxd/outboxd.toml"
install -m 644 README.md packaging/alerts.yml packaging/grafana-dashboard.json "$doc"
install -m 644 packaging/outboxd.cron "$doc/examples"

# The Apache licence is on every Debian system.
{
    printf 'outboxd may be used under the MIT licence or the Apache License 2.0, as you like.\n\n'
    cat LICENSE-MIT
    printf '\nThe Apache License 2.0 is in /usr/share/common-licenses/Apache-2.0.\n'
} >"$doc/copyright"
printf 'outboxd (%s) unstable; urgency=medium\n\n  * See README.md, Changes.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$(LC_ALL=C date -u -R -d "@$epoch")" | gzip -9n >"$doc/changelog.gz"

# What the binary is linked with says what it needs.
mkdir -p "$work/control/debian"
printf 'Source: outboxd\n\nPackage: outboxd\nArchitecture: any\n' >"$work/control/debian/control"
depends=
if command -v dpkg-shlibdeps >/dev/null 2>&1; then
    depends=$(cd "$work/control" && dpkg-shlibdeps -O "$root/usr/bin/outboxd" 2>/dev/null |
        sed -n 's/^shlibs:Depends=//p') || depends=
fi
[ -n "$depends" ] || depends="libc6, libgcc-s1, libssl3"

cat >"$root/DEBIAN/control" <<END
Package: outboxd
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -k -s --apparent-size "$root" | cut -f 1)
Depends: $depends
Recommends: ca-certificates
Section: net
Priority: optional
Description: relay of the transactional outbox, PostgreSQL to RabbitMQ
 It moves events that applications have committed to an outbox table in
 PostgreSQL to RabbitMQ: at least once, and never without the broker's
 confirm. Nothing is started or enabled by installing it.
END
echo /etc/outboxd/outboxd.toml >"$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do
    install -m 755 "packaging/debian/$script" "$root/DEBIAN/$script"
done
(cd "$root" && find usr -type f -exec md5sum {} + | LC_ALL=C sort -k 2 >DEBIAN/md5sums)
find "$root" -exec touch -h -d "@$epoch" {} +

mkdir -p "$out"
package=$out/outboxd_${version}_$architecture.deb
dpkg-deb --root-owner-group -Z"${COMPRESSION:-xz}" --build "$root" "$package" >/dev/null
echo "$package"
