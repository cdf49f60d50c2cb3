#!/bin/bash
# image.sh FILE NAME: writes the image of sandboxes, which only wait: this machine's static busybox.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
install -D "$(command -v busybox)" "$work/root/bin/busybox"
tar -C "$work/root" -cf "$work/layer.tar" bin
layer=$(sha256sum "$work/layer.tar" | cut -d ' ' -f 1)
cat >"$work/config.json" <<J
{"architecture": "$(go env GOARCH)", "os": "linux", "config": {"Entrypoint": ["/bin/busybox", "sleep", "2147483647"]},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$layer"]}}
J
echo '[{"Config": "config.json", "RepoTags": ["'"$2"'"], "Layers": ["layer.tar"]}]' >"$work/manifest.json"
tar -C "$work" -cf "$1.new" manifest.json config.json layer.tar
mv "$1.new" "$1"
