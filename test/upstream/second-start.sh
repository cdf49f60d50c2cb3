#!/bin/sh
# second-start.sh HOST_LOCAL: calls the real host-local as cilium-agent would with CFP-45607
# (github.com/cilium/design-cfps, cilium/CFP-45607-delegated-ipam-ingress.md): at each start an ADD with
# the container ID cilium-ingress-NODE, without a DEL. Prints both responses. The exit status is 0 if
# the second start fails as docs/design/upstream.md describes.
set -eu
plugin=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
config='{"cniVersion":"1.0.0","name":"pods","type":"cilium-cni",
  "ipam":{"type":"host-local","ranges":[[{"subnet":"10.42.0.0/24"}]],"dataDir":"'$dir'"}}'

start() {
  echo "$config" | env CNI_COMMAND=ADD CNI_CONTAINERID=cilium-ingress-node-1 CNI_IFNAME=eth0 \
    CNI_NETNS=/run/netns/ephemeral CNI_PATH="$(dirname "$plugin")" \
    CNI_ARGS="IgnoreUnknown=1;K8S_POD_NAMESPACE=kube-system;K8S_POD_NAME=cilium-ingress-node-1" "$plugin"
}

echo "first start:"
start
echo "second start:"
if second=$(start); then
  echo "$second"
  echo "the second ADD succeeded; expected that host-local refuses it" >&2
  exit 1
fi
echo "$second"
case $second in
*"duplicate allocation is not allowed"*) ;;
*) echo "expected the error \"duplicate allocation is not allowed\"" >&2 && exit 1 ;;
esac
