#!/usr/bin/env bash
# make.sh COMMIT [PROFILE]: builds the sidecar of a commit, has it write a journal with a record in each
# state, and copies that to VERSION-COMMIT/attachments beside this script (README.md). Needs root: the
# sidecar runs in a separate mount namespace with the default paths of a node.
#
# PROFILE is the profile of the plugin type "remote-ipam" in the form that the commit accepts;
# by default profile.json.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

if [[ ${IN_NAMESPACE-} != yes ]]; then
  root=$(git -C "$here" rev-parse --show-toplevel)
  commit=$(git -C "$root" rev-parse --short=7 "$1^{commit}")
  profile=$(realpath "${2:-$here/profile.json}")
  temporary=$(mktemp -d)
  trap 'rm -rf "$temporary"' EXIT
  mkdir "$temporary/source"
  git -C "$root" archive "$commit" | tar -x -C "$temporary/source"
  (cd "$temporary/source" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o ../sidecar ./cmd/delegated-ipam)
  make -s -C "$root" plugins
  cp "$root/.cache/plugins/host-local" "$temporary/host-local"
  cp "$profile" "$temporary/profile.json"
  IN_NAMESPACE=yes unshare --mount --propagation private "$0" "$temporary"
  version=$(sed -n 's/^{"version":\([0-9]*\),.*/\1/p' "$temporary"/attachments/*.json | sort -u)
  mkdir -p "$here/$version-$commit"
  rm -rf "$here/$version-$commit/attachments"
  cp -r "$temporary/attachments" "$here/$version-$commit/attachments"
  chmod 644 "$here/$version-$commit"/attachments/*
  exit
fi

# In the namespace: the IDs of machine and boot, the plugins and their configuration.
temporary=$1
sidecar=
trap '[[ -z $sidecar ]] || kill -KILL "$sidecar" 2>/dev/null || true' EXIT
echo 0123456789abcdef0123456789abcdef >"$temporary/machine-id"
echo 11111111-2222-4333-8444-555555555555 >"$temporary/boot_id"
mount --bind "$temporary/machine-id" /etc/machine-id
mount --bind "$temporary/boot_id" /proc/sys/kernel/random/boot_id
mount -t tmpfs tmpfs /opt
mount -t tmpfs tmpfs /var/lib
mkdir -p /opt/cni/bin /opt/cni/net.d /opt/run
cp "$temporary/host-local" /opt/cni/bin/host-local
cp "$temporary/profile.json" /opt/cni/remote-ipam.json
# A plugin whose ADD returns an address or hangs, and whose DEL succeeds or is killed.
cat >/opt/cni/bin/remote-ipam <<'PLUGIN'
#!/bin/sh
case $CNI_COMMAND in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}' ;;
ADD)
  cat >/dev/null
  if [ -e /opt/run/hang ]; then touch /opt/run/hanging; exec sleep 600; fi
  echo '{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.7/24","gateway":"10.9.0.1"}]}' ;;
DEL)
  cat >/dev/null
  if [ -e /opt/run/crash ]; then rm /opt/run/crash; kill -KILL $$; fi ;;
esac
PLUGIN
chmod 755 /opt/cni/bin/remote-ipam
cat >/opt/cni/net.d/10-pods.conflist <<'CONF'
{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"cilium-cni","ipam":{"type":"host-local","ranges":[
  [{"subnet":"10.15.0.0/24"}],[{"subnet":"fd00:15::/64"}]]}}]}
CONF
cat >/opt/cni/net.d/20-remote.conflist <<'CONF'
{"cniVersion":"1.0.0","name":"remote","plugins":[{"type":"cilium-cni","ipam":{"type":"remote-ipam"}}]}
CONF

start() { # [OPTION...]
  "$temporary/sidecar" serve --socket-path=/opt/run/ipam.sock --cni-conf-dir=/opt/cni/net.d --node-name=worker-1 \
    --plugin-profile=/opt/cni/remote-ipam.json --pool=remote=remote --cni-network=pods "$@" 2>>"$temporary/log" &
  sidecar=$!
  await test -S /opt/run/ipam.sock
}
stop() { # SIGNAL
  kill "-$1" "$sidecar"
  wait "$sidecar" 2>/dev/null || true
  sidecar=
  rm -f /opt/run/ipam.sock
}
api() { # METHOD PATH [CURL OPTION...]
  local method=$1 path=$2
  shift 2
  curl --silent --show-error --fail-with-body --output /opt/run/response --unix-socket /opt/run/ipam.sock -X "$method" "$@" "http://localhost/v1/ipam$path"
}
await() { # COMMAND...: until it succeeds, at most 10 s
  for _ in $(seq 100); do
    ! "$@" || return 0
    sleep 0.1
  done
  echo "not reached: $*" >&2
  cat "$temporary/log" >&2
  return 1
}
records=/var/lib/delegated-ipam/attachments
state() { # OWNER STATE...
  local owner=$1 state
  shift
  for state in "$@"; do
    ! grep -qs "\"owner\":\"$owner\".*\"state\":\"$state\"" "$records"/*.json || return 0
  done
  return 1
}

# Held: both families; one of two; to be confirmed.
start --release-delay=1h
api POST '?owner=router'
api POST '?owner=health&family=ipv4'
api POST '?owner=ingress' -H 'Expiration: true'
# Released with a delay: cooldown.
api POST '/10.15.0.77?owner=default/web-0'
api DELETE /10.15.0.77
await state default/web-0 cooldown cooling
api POST '/10.15.0.88?owner=default/web-1'
stop TERM

# A DEL that cannot run: releasing.
rm /opt/cni/bin/host-local
start --release-delay=1h --retire-owners '--owners=router,health,ingress,default/web-0,remote/*'
await state default/web-1 releasing
api POST '?owner=remote/late&pool=remote'
stop TERM
# A DEL with an unknown outcome, and one that succeeds: tombstone.
start
touch /opt/run/crash
! api DELETE '/10.9.0.7?pool=remote' 2>/dev/null
await state remote/late tombstone spent
# Killed during an ADD: adding.
touch /opt/run/hang
api POST '?owner=remote/web-2&pool=remote' 2>/dev/null &
await test -e /opt/run/hanging
stop KILL
wait || true
cp -r "$records" "$temporary/attachments"
