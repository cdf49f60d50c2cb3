#!/bin/sh
# run.sh BINARY: serves in the foreground from ./run, which git ignores. The next run finds
# the same attachments. Called by "make run".
set -eu

binary=$1
here=$(pwd)
mkdir -p run/net.d

# A sample of what cilium-cni finds in /etc/cni/net.d, with IPAM delegated to host-local. It is
# written each time, because the checkout may have moved.
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

  # the owner "demo" gets some address
  curl --unix-socket '$socket' -X POST 'http://localhost/v1/ipam?owner=demo&family=ipv4'

  # the owner "router" gets this one
  curl --unix-socket '$socket' -X POST 'http://localhost/v1/ipam/10.15.0.20?owner=router'

  # list all attachments
  curl --unix-socket '$socket' 'http://localhost/v1/ipam'

  # release the address of "router"
  curl --unix-socket '$socket' -X DELETE 'http://localhost/v1/ipam/10.15.0.20'

EOF

# A second daemon of one node and network is refused, so each checkout is another node.
node=sample-$(printf %s "$here" | cksum | cut -d' ' -f1)

exec "$binary" serve \
  --socket-path="$socket" \
  --state-dir="$here/run/state" \
  --cni-conf-dir="$here/run/net.d" \
  --host-local=embedded \
  --node-name="$node" \
  --local-router-ipv4=10.15.0.1 \
  --local-router-ipv6=fd00:15::1 \
  --log-level=debug
