#!/bin/sh
# reproducible.sh VERSION: builds the programs of this checkout twice, as it is in the working tree, and
# fails unless both builds are the same byte for byte: in directories of different length, with
# different umasks, the second one with an empty build cache for the sidecar. So are the images, and
# the bills of materials of their programs. Called by "make reproducible".
set -eu
version=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

copy() { # TO
	mkdir -p "$1"
	git ls-files -z | tar -c --null -T - | tar -x -C "$1"
}
first=$dir/a second=$dir/another/directory
copy "$first"
copy "$second"
(umask 022 && make -s -C "$first" build image VERSION="$version")
(umask 077 && cd "$second" && mkdir bin &&
	CGO_ENABLED=0 GOCACHE=$dir/cache go build -ldflags "-s -w -X main.version=$version" -o bin/delegated-ipam ./cmd/delegated-ipam &&
	make -s build image VERSION="$version")

same() { # FILE
	cmp "$first/$1" "$second/$1" || { echo "$1 differs between two builds" >&2; exit 1; }
	(cd "$first" && sha256sum "$1")
}
for name in delegated-ipam delegated-ipam-bridge; do
	same "bin/$name"
	same "bin/$name-amd64.cdx.json"
	same "bin/$name-arm64.cdx.json"
	same "bin/$name.tar"
done
