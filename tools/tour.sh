#!/bin/sh
# tour.sh DIR: plays the sessions of docs/operate/tour.md and draws their pictures. The renderer and
# its packages are put into DIR. Called by "make tour".
set -eu

mkdir -p "$1"
go test -count=1 ./test/e2e -run '^TestTour$' -update
cp tools/tour/package.json tools/tour/package-lock.json tools/tour/render.mjs "$1"
npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund
node "$1/render.mjs" docs/operate/tour/*.txt
