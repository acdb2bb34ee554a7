#!/usr/bin/env bash
# usage: deploy/release.sh VERSION DIR
# Static binaries for linux/amd64 and linux/arm64, each in an archive with licences, service unit, manual pages, completions and sample configuration,
# and in packages for Debian and Red Hat; a container image of both as an OCI layout; a bill of materials; checksums. The same commit, the same Go and
# the same certificate authorities make the same bytes: no path, user or time of the machine goes in.
set -euo pipefail
version=$1 dir=$2
cd "$(dirname "$0")/.."
[ -n "${SOURCE_DATE_EPOCH:-}" ] || SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
mtime=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
revision=$(git rev-parse HEAD)
mkdir -p "$dir"
# Debian's and RPM's tools take a version that begins with a digit.
package_version=${version#v}
case $package_version in [0-9]*) ;; *) package_version=0.0.0~$package_version ;; esac
work=$(mktemp -d)
man=$work/man
mkdir "$man"
trap 'rm -rf "$work"' EXIT
images=()
go test -count=1 -run TestManualPages ./cmd/canal-outbox -man "$man" >/dev/null
for arch in amd64 arm64; do
  name=canal-outbox_${version}_linux_$arch
  stage=$work/$arch
  mkdir -p "$stage/$name/man" "$stage/$name/completions"
  cp "$man"/*.1 "$stage/$name/man/"
  CGO_ENABLED=0 GOOS=linux GOARCH=$arch GOAMD64=v1 GOARM64=v8.0 GOFLAGS= go build -buildvcs=false -trimpath \
    -ldflags "-s -w -buildid= -X main.version=$version -X main.revision=$revision -X main.date=$mtime" -o "$stage/$name/canal-outbox" ./cmd/canal-outbox
  # The completions are those of the program; a Go of another architecture cannot run it.
  if [ ! -d "$work/completions" ]; then
    CGO_ENABLED=0 go build -buildvcs=false -o "$work/here" ./cmd/canal-outbox
    mkdir "$work/completions"
    "$work/here" completion bash >"$work/completions/canal-outbox.bash"
    "$work/here" completion zsh >"$work/completions/_canal-outbox"
    "$work/here" completion fish >"$work/completions/canal-outbox.fish"
  fi
  cp "$work"/completions/* "$stage/$name/completions/"
  cp LICENSE NOTICE README.md CHANGELOG.md deploy/canal-outbox.service deploy/canal-outbox.yaml "$stage/$name/"
  chmod 0755 "$stage/$name" "$stage/$name/man" "$stage/$name/completions" "$stage/$name/canal-outbox"
  find "$stage/$name" -type f ! -name canal-outbox -exec chmod 0644 {} +
  tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar --directory="$stage" "$name" |
    gzip --no-name --best >"$dir/$name.tar.gz"
  [ $arch != amd64 ] || CGO_ENABLED=0 GOFLAGS= go run -trimpath github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 bin \
    -json -std -noserial -notimestamp -version "$version" "$stage/$name/canal-outbox" >"$dir/canal-outbox_${version}.cdx.json"
  images+=("$arch=$stage/$name")
  gzip --no-name --best "$stage/$name"/man/*.1
  sed 's|/usr/local/bin/|/usr/bin/|' deploy/canal-outbox.service >"$stage/$name/canal-outbox.unit"
  for packager in deb rpm; do
    sed "s|\${ARCH}|$arch|; s|\${VERSION}|$package_version|; s|\${MTIME}|$mtime|g; s|\${STAGE}|$stage/$name|g" deploy/package/nfpm.yaml >"$work/nfpm.yaml"
    SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH GOFLAGS= go run -trimpath github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.43.4 package --config "$work/nfpm.yaml" \
      --packager $packager --target "$dir/canal-outbox_${version}_linux_$arch.$packager" >"$work/nfpm.log" || { cat "$work/nfpm.log" >&2; exit 1; }
  done
done
go -C deploy/image run . -out "$dir/canal-outbox_${version}_image.tar" -version "$version" -created "$SOURCE_DATE_EPOCH" "${images[@]}"
cd "$dir"
sha256sum canal-outbox_"$version"* >SHA256SUMS
cat SHA256SUMS
