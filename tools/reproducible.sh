#!/bin/sh
# Builds the programs and a snapshot release of this checkout twice, as it is in the working tree, and
# fails unless both are the same byte for byte: in directories of different length, with different
# umasks, the second one with an empty build cache for the daemon. Called by "make reproducible".
set -eu
version=v0.0.0-snapshot
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

copy() { # TO
  mkdir -p "$1"
  git ls-files -z | tar -c --null -T - | tar -x -C "$1"
}
first=$dir/a second=$dir/another/directory
copy "$first"
copy "$second"
(umask 022 && make -s -C "$first" build release VERSION="$version")
(umask 077 && cd "$second" && mkdir bin &&
  CGO_ENABLED=0 GOCACHE=$dir/cache go build -tags grpcnotrace -ldflags "-s -w -X main.version=$version" -o bin/delegated-ipam ./cmd/delegated-ipam &&
  make -s build release VERSION="$version")

# bin/ has the programs for this machine, and the release.
diff -r "$first/bin" "$second/bin" || { echo "bin/ differs between two builds" >&2; exit 1; }
(cd "$first/bin" && sha256sum delegated-ipam delegated-ipam-bridge delegated-ipam-cni delegated-ipam-cri && cat release/"$version"/SHA256SUMS)
