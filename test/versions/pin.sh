#!/bin/bash
# pin.sh: makes the Go modules that versions.txt names require the versions in it. Needs the network.
set -euo pipefail
cd "$(dirname "$0")/../.."
while read -r name version path modules; do
  for module in $modules; do
    [[ $name != '#' && $(go list -C "$module" -m -f '{{.Version}}' "$path") != "$version" ]] || continue
    echo "$module: $path $version"
    if [ "$path" = k8s.io/kubernetes ]; then
      # It requires its own libraries by replace directives; they are released as v0 beside it.
      source=$(go mod download -json "$path@$version" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
      for library in $(sed -n 's|^\t\(k8s.io/[a-z-]*\) => ./staging/.*|\1|p' "$source/go.mod"); do
        go -C "$module" mod edit -replace "$library=$library@v0${version#v1}"
      done
    fi
    go -C "$module" mod edit -require "$path@$version"
    go -C "$module" mod tidy
  done
done <test/versions/versions.txt
