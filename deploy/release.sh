#!/usr/bin/env bash
# usage: deploy/release.sh VERSION DIR
# Static binaries for linux/amd64 and linux/arm64, each in an archive with licences, service unit and sample configuration; a bill of
# materials; checksums. The same commit and the same Go make the same bytes: no path, user or time of the machine goes in.
set -euo pipefail
version=$1 dir=$2
cd "$(dirname "$0")/.."
[ -n "${SOURCE_DATE_EPOCH:-}" ] || SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
mkdir -p "$dir"
man=$(mktemp -d)
trap 'rm -rf "$man" "${stage:-}"' EXIT
go test -count=1 -run TestManualPages ./cmd/canal-outbox -man "$man" >/dev/null
for arch in amd64 arm64; do
  name=canal-outbox_${version}_linux_$arch
  stage=$(mktemp -d)
  mkdir -p "$stage/$name/man"
  cp "$man"/*.1 "$stage/$name/man/"
  CGO_ENABLED=0 GOOS=linux GOARCH=$arch GOAMD64=v1 GOARM64=v8.0 GOFLAGS= go build -buildvcs=false -trimpath \
    -ldflags "-s -w -buildid= -X main.version=$version" -o "$stage/$name/canal-outbox" ./cmd/canal-outbox
  cp LICENSE NOTICE README.md CHANGELOG.md deploy/canal-outbox.service deploy/canal-outbox.yaml "$stage/$name/"
  chmod 0755 "$stage/$name" "$stage/$name/man" "$stage/$name/canal-outbox"
  find "$stage/$name" -type f ! -name canal-outbox -exec chmod 0644 {} +
  tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar --directory="$stage" "$name" |
    gzip --no-name --best >"$dir/$name.tar.gz"
  [ $arch != amd64 ] || CGO_ENABLED=0 GOFLAGS= go run -trimpath github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 bin \
    -json -std -noserial -notimestamp -version "$version" "$stage/$name/canal-outbox" >"$dir/canal-outbox_${version}.cdx.json"
  rm -rf "$stage"
done
cd "$dir"
sha256sum canal-outbox_"$version"* >SHA256SUMS
cat SHA256SUMS
