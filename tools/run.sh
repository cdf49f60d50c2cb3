#!/bin/sh
# Serves from ./run in the foreground: "make run" calls it with the binary and
# the folder of plugins. Everything it writes is in ./run, which git ignores;
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

# The path of a unix socket has at most 107 bytes (unix(7)). The relative one
# always fits, but only the absolute one works from every folder.
socket=$here/run/ipam.sock
where="in another terminal"
if [ "$(printf %s "$socket" | wc -c)" -gt 107 ]; then
  socket=run/ipam.sock
  where="in another terminal, in $here (the absolute path is too long for a unix socket)"
fi

cat <<EOF

Serving on $socket. Stop with Ctrl-C. To try it, $where:

  # the owner "demo" gets its address
  curl --unix-socket '$socket' -X POST 'http://localhost/v1/ipam?owner=demo&family=ipv4'

  # who holds what
  curl --unix-socket '$socket' 'http://localhost/v1/ipam'

  # give the address of "demo" back (asked for again, it is the same one)
  curl --unix-socket '$socket' -X DELETE "http://localhost/v1/ipam/\$(curl -s --unix-socket '$socket' -X POST 'http://localhost/v1/ipam?owner=demo&family=ipv4' | sed 's/.*"ipv4":"\([0-9.]*\)".*/\1/')"

EOF

exec "$binary" serve \
  --socket-path="$socket" \
  --state-dir="$here/run/state" \
  --cni-conf-dir="$here/run/net.d" \
  --cni-bin-dir="$plugins" \
  --node-name=sample-node \
  --local-router-ipv4=10.15.0.1 \
  --local-router-ipv6=fd00:15::1
