#!/bin/sh
# Serves from ./run in the foreground: "make run" calls it with the binary and
# the directory of plugins. Everything it writes is in ./run, which git ignores;
# what was handed out before is still there when it is run again.
set -eu

binary=$1
plugins=$(cd "$2" && pwd)
here=$(pwd)
mkdir -p run/net.d

# The sample that cilium-cni would find in /etc/cni/net.d, with IPAM delegated
# to host-local. Written anew each time, because the checkout may have moved.
cat >run/net.d/05-cilium.conflist <<EOF
{
  "cniVersion": "1.0.0",
  "name": "sample",
  "plugins": [
    {
      "type": "cilium-cni",
      "ipam": {
        "type": "host-local",
        "dataDir": "$here/run/host-local",
        "ranges": [
          [{"subnet": "10.15.0.0/24", "gateway": "10.15.0.1"}],
          [{"subnet": "fd00:15::/112", "gateway": "fd00:15::1"}]
        ]
      }
    }
  ]
}
EOF

socket=$here/run/ipam.sock
if [ "$(printf %s "$socket" | wc -c)" -gt 107 ]; then
  echo "make run: the path of a unix socket has at most 107 bytes (unix(7)), and $socket has more; move the checkout to a shorter path" >&2
  exit 1
fi

cat <<EOF

Serving on $socket. Stop with Ctrl-C. To try it, in another terminal:

  # the owner "demo" gets its address
  curl --unix-socket '$socket' -X POST 'http://localhost/v1/ipam?owner=demo&family=ipv4'

  # who holds what
  curl --unix-socket '$socket' 'http://localhost/v1/ipam'

  # give the address of "demo" back
  curl --unix-socket '$socket' -X DELETE "http://localhost/v1/ipam/\$(curl -s --unix-socket '$socket' -X POST 'http://localhost/v1/ipam?owner=demo&family=ipv4' | sed 's/.*"ipv4":"\([0-9.]*\)".*/\1/')"

EOF

# A second sidecar of one node and network is refused, so each checkout is a
# node of its own.
node=sample-$(printf %s "$here" | cksum | cut -d' ' -f1)

exec "$binary" serve \
  --socket-path="$socket" \
  --state-dir="$here/run/state" \
  --cni-conf-dir="$here/run/net.d" \
  --cni-bin-dir="$plugins" \
  --node-name="$node" \
  --local-router-ipv4=10.15.0.1 \
  --local-router-ipv6=fd00:15::1 \
  --log-level=debug
