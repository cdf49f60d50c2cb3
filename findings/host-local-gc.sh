#!/bin/sh
# host-local-gc.sh: what does host-local's GC keep if the list of valid attachments is missing?
#
# Version: plugins/ipam/host-local of github.com/containernetworking/plugins v1.10.0.
#
# One would guess: a caller without the key "cni.dev/valid-attachments" has no list, so GC refuses or
# changes nothing, as CNI requires the key. And GC removes leases only.
#
# Observed: a missing key and null are an empty list, and every lease of the network is freed. Go's
# encoding/json writes a nil slice as null, so a runtime whose list was never filled calls it so. GC also
# deletes each other regular file of the directory (GC in backend/disk/backend.go), but not
# last_reserved_ip.N. VERSION does not show whether GC is implemented: v1.9.1 lists 1.1.0, too, and its GC
# does nothing.
#
# Output:
#   [{"containerID":"a","ifname":"eth0"}], exit status 0: 10.1.0.2 last_reserved_ip.0 lock
#   [], exit status 0: last_reserved_ip.0 lock
#   null, exit status 0: last_reserved_ip.0 lock
#   no key, exit status 0: last_reserved_ip.0 lock
#
# Usage: host-local-gc.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from the
# output above, and 2 if something is missing.
set -eu
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
GOBIN=$dir GOFLAGS='' GO111MODULE=on CGO_ENABLED=0 go install github.com/containernetworking/plugins/plugins/ipam/host-local@v1.10.0 || exit 2

# call VERB ID KEY runs host-local, with a further key of the configuration.
call() {
  printf '{"cniVersion":"1.1.0","name":"net","type":"ptp","ipam":{"type":"host-local","dataDir":"%s/leases","ranges":[[{"subnet":"10.1.0.0/24"}]]}%s}' "$dir" "$3" |
    CNI_COMMAND=$1 CNI_CONTAINERID=$2 CNI_IFNAME=eth0 CNI_NETNS=/run/netns/none CNI_PATH=$dir "$dir/host-local"
}

for list in '[{"containerID":"a","ifname":"eth0"}]' '[]' null 'no key'; do
  call ADD a '' >/dev/null
  call ADD b '' >/dev/null
  echo "rack 7" >"$dir/leases/net/notes"
  key=",\"cni.dev/valid-attachments\":$list"
  [ "$list" != 'no key' ] || key=
  status=0
  call GC '' "$key" || status=$?
  echo "$list, exit status $status: $(ls "$dir/leases/net" | xargs)"
  rm -r "$dir/leases"
done >"$dir/observed"
cat "$dir/observed"
sed -n '/^# Output:/,/^#$/s/^#   //p' "$0" >"$dir/expected"
diff "$dir/expected" "$dir/observed" || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
