#!/bin/sh
# screenshot.sh DIR BRIDGE: records what the dashboard shows (test/dashboard) and draws it into
# docs/operate/dashboard.png. The recording, the page and its packages are put into DIR; BRIDGE is
# the program of the bridge. Called by "make screenshot".
set -eu

for tool in prometheus npm chromium pngquant; do
  command -v "$tool" >/dev/null ||
    { echo "screenshot.sh: $tool was not found; Debian's packages are prometheus, npm, chromium and pngquant" >&2; exit 1; }
done
mkdir -p "$1"
dir=$(cd "$1" && pwd)
DASHBOARD_DIR=$dir DASHBOARD_BRIDGE=$2 DASHBOARD_DURATION=${DASHBOARD_DURATION:-5m} \
  go test -count=1 -timeout 30m ./test/dashboard -run '^TestRecord$'

cp tools/screenshot/* "$dir"
npm ci --prefix "$dir" --ignore-scripts --no-audit --no-fund
size=$(node "$dir/page.mjs" "$dir/panels.json" "$dir/page.html")
chromium --headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update \
  --disable-sync --hide-scrollbars --user-data-dir="$dir/chromium" --window-size="$size" --screenshot="$dir/dashboard.png" \
  "file://$dir/page.html" 2>"$dir/chromium.log"
pngquant --force --strip --speed 1 --output docs/operate/dashboard.png 64 "$dir/dashboard.png"
