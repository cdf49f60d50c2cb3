#!/bin/sh
# whereabouts-del-ranges.sh: does whereabouts' DEL free what a container has in the other ranges, if one lacks it?
#
# Version: github.com/k8snetworkplumbingwg/whereabouts v0.9.4, its DEL over the fake clients of its own tests:
# two IPPools, of IPv4 and of IPv6. The reservation in one was lost, as by a restored pool or a DEL that was killed.
#
# One would guess: yes. A DEL has to free all that is left, and to succeed for what is missing (CNI specification,
# DEL).
#
# Observed: it goes through the ranges in the order of the configuration, and at the first one that has nothing for the
# container it ends with success. What the later ranges have stays reserved, and no further DEL frees it; what the
# earlier ones had is freed (IPManagementKubernetesUpdate in pkg/storage/kubernetes/ipam.go).
#
# Output:
#   the second range lacks it: DEL <nil>, then IPv4 0, IPv6 0
#   the first range lacks it: DEL <nil>, then IPv4 0, IPv6 1
#   a further DEL: DEL <nil>, then IPv4 0, IPv6 1
#
# Usage: whereabouts-del-ranges.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from
# the output above, and 2 if something is missing.
set -eu
self=$(realpath "$0")
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export GOFLAGS='' GO111MODULE=on CGO_ENABLED=0
cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pods "k8s.io/client-go/kubernetes/fake"

	"github.com/k8snetworkplumbingwg/whereabouts/pkg/api/whereabouts.cni.cncf.io/v1alpha1"
	pools "github.com/k8snetworkplumbingwg/whereabouts/pkg/generated/clientset/versioned/fake"
	"github.com/k8snetworkplumbingwg/whereabouts/pkg/logging"
	"github.com/k8snetworkplumbingwg/whereabouts/pkg/storage/kubernetes"
	"github.com/k8snetworkplumbingwg/whereabouts/pkg/types"
)

const namespace = "kube-system"

func pool(subnet string, reserved bool) *v1alpha1.IPPool {
	name := kubernetes.IPPoolName(kubernetes.PoolIdentifier{IpRange: subnet})
	p := &v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: "1"},
		Spec:       v1alpha1.IPPoolSpec{Range: subnet, Allocations: map[string]v1alpha1.IPAllocation{}},
	}
	if reserved {
		p.Spec.Allocations["1"] = v1alpha1.IPAllocation{ContainerID: "a", PodRef: "default/web", IfName: "eth0"}
	}
	return p
}

func main() {
	logging.SetLogStderr(false)
	ranges := []types.RangeConfiguration{{Range: "10.1.0.0/24"}, {Range: "fd00:1::/112"}}
	config := types.IPAMConfig{PodName: "web", PodNamespace: "default", IPRanges: ranges}
	del := func(what string, store *pools.Clientset) {
		ipam := &kubernetes.KubernetesIPAM{
			Client: *kubernetes.NewKubernetesClient(store, pods.NewSimpleClientset()), Config: config,
			Namespace: namespace, ContainerID: "a", IfName: "eth0",
		}
		_, err := kubernetes.IPManagementKubernetesUpdate(context.Background(), types.Deallocate, ipam, config)
		var left [2]int
		for i, r := range ranges {
			name := kubernetes.IPPoolName(kubernetes.PoolIdentifier{IpRange: r.Range})
			p, err := store.WhereaboutsV1alpha1().IPPools(namespace).Get(context.Background(), name, metav1.GetOptions{})
			if err != nil {
				panic(err)
			}
			left[i] = len(p.Spec.Allocations)
		}
		fmt.Printf("%s: DEL %v, then IPv4 %d, IPv6 %d\n", what, err, left[0], left[1])
	}
	del("the second range lacks it", pools.NewSimpleClientset(pool(ranges[0].Range, true), pool(ranges[1].Range, false)))
	lacks := pools.NewSimpleClientset(pool(ranges[0].Range, false), pool(ranges[1].Range, true))
	del("the first range lacks it", lacks)
	del("a further DEL", lacks)
}
GO
go mod init example >/dev/null 2>&1
go get github.com/k8snetworkplumbingwg/whereabouts@v0.9.4 >/dev/null 2>&1 || exit 2
go mod tidy >/dev/null 2>&1 || exit 2
go run . >observed
cat observed
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >expected
diff expected observed || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
