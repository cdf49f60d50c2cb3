#!/usr/bin/env bash
# Builds an image of each program from bin/ with buildah and puts it, tagged
# NAME:TAG, into bin/NAME.tar, which "docker load", "podman load" and
# "ctr images import" take. It needs root, and neither a daemon nor a network:
# all that buildah writes is below STORE.
#
# Usage: build.sh STORE TAG VERSION
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
store=$1 tag=$2 version=$3

command -v buildah >/dev/null || { echo "buildah was not found; on Debian: apt-get install --no-install-recommends buildah" >&2; exit 1; }
[[ $(id -u) -eq 0 ]] || { echo "building an image without user namespaces needs root" >&2; exit 1; }

revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
# The same commit gives the same image.
time=$(git log -1 --format=%ct 2>/dev/null || echo 0)
for name in delegated-ipam delegated-ipam-bridge; do
  deploy/image/buildah.sh "$store" build --isolation chroot --quiet --layers=false --timestamp "$time" \
    --file deploy/image/Dockerfile --ignorefile deploy/image/Dockerfile.dockerignore --target "$name" \
    --build-arg VERSION="$version" --build-arg REVISION="$revision" \
    --tag "$name:$tag" . >/dev/null
  rm -f "bin/$name.tar"
  deploy/image/buildah.sh "$store" push --quiet "$name:$tag" "docker-archive:bin/$name.tar:docker.io/library/$name:$tag"
  echo "bin/$name.tar: docker.io/library/$name:$tag, $(stat -c %s "bin/$name.tar") bytes"
done
# The archives are all that is wanted; the store would grow with each build.
deploy/image/buildah.sh "$store" rmi --all --force >/dev/null
