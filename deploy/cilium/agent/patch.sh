#!/bin/bash
# patch.sh SOURCE OUT: copies SOURCE, the sources of a release of Cilium, such as a directory of
# Go's module cache, to OUT and applies the patches of the release's line to the copy. Needs git.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
release=v$(cat "$1/VERSION")
line=${release%.*}
[ -f "$here/$line.patch" ] ||
  { echo "no patch for Cilium $release; there are: $(cd "$here" && echo v?.??.patch)" >&2; exit 1; }
patches=("$here/$line.patch")
if grep -q '^	IPV4 ' "$1/api/v1/models/address_pair.go"; then
  patches+=("$here/$line-models.patch")
fi

rm -rf "$2"
mkdir -p "$2"
out=$(cd "$2" && pwd)
cp -r "$1/." "$out"
chmod -R u+w "$out"
# Without the ceiling, git would take the paths as those of a repository above OUT.
GIT_CEILING_DIRECTORIES=$(dirname "$out") git -C "$out" apply "${patches[@]}"
