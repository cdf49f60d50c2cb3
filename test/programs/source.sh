#!/bin/bash
# source.sh MODULE_DIR MODULE: prints the directory with the sources of a Go module in the version that
# the go.mod of MODULE_DIR, beside this file or absolute, pins. It downloads them if necessary.
set -euo pipefail
cd "$(dirname "$0")"
cd "$1"
go mod download -json "$2@$(go list -m -f '{{.Version}}' "$2")" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p'
