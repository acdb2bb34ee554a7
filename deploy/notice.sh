#!/usr/bin/env bash
# usage: deploy/notice.sh go-licenses@version >NOTICE
# Writes the licences of every library in the service binary, as go-licenses finds them, and the notices that the Apache License asks to
# be passed on. A library whose licence is not known is an error.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C CGO_ENABLED=0 GOOS=linux GOARCH=amd64 GOFLAGS=
line=--------------------------------------------------------------------------------
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/template" <<EOF
{{range .}}
$line
{{.Name}}: {{.LicenseName}}
{{if and (eq .LicenseName "Apache-2.0") (lt (len .LicenseText) 12000)}}{{else}}
{{.LicenseText}}
{{end}}{{end}}
EOF
# The tool finds the standard library by GOROOT, and runs on this machine whatever the binary is for.
tool=$work/go-licenses
env -u GOOS -u GOARCH GOBIN="$work" go install "$1"
GOROOT=$(go env GOROOT) "$tool" report --ignore github.com/canal-outbox --template "$work/template" ./cmd/canal-outbox \
  >"$work/licences" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
if grep ': Unknown$' "$work/licences" >&2; then exit 1; fi
cat <<'EOF'
canal-outbox
Copyright The canal-outbox authors

Licensed under the Apache License, Version 2.0: see LICENSE.

The binary canal-outbox holds the libraries below, among them files of its dashboard, and the runtime and standard library of Go (BSD
licence as for golang.org/x). Where only "Apache-2.0" follows a name, the text is that of LICENSE. "make generate" writes this file.
EOF
cat "$work/licences"
for file in internal/admin/page/*.LICENSE; do
  printf '\n%s\n%s\n\n' $line "${file%.LICENSE}"
  cat "$file"
done
go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./cmd/canal-outbox | sort -u | while read -r module dir; do
  for file in "$dir"/NOTICE* "$dir"/licenses/*; do
    [ ! -f "$file" ] || { printf '\n%s\n%s: %s\n\n' $line "$module" "${file#"$dir"/}"; cat "$file"; }
  done
done
