#!/bin/sh
# whereabouts-reconciler.sh: does whereabouts' ip-reconciler keep the addresses of running pods?
#
# Version: github.com/k8snetworkplumbingwg/whereabouts v0.9.4, its reconciler over the fake clients of its
# own tests: an IPPool and the pods of its reservations, all of which run.
#
# One would guess: yes. It frees the reservations of pods that do not exist, and a running pod is proof of
# its address.
#
# Observed: it keeps an address only if the pod's annotation k8s.v1.cni.cncf.io/network-status, which multus
# writes, has it in an entry without "default": true. So it frees that of each running pod whose default
# network is whereabouts, and of each pod in a cluster without multus; other pods get them
# (getFlatIPSet in pkg/reconciler/wrappedPod.go).
#
# Output:
#   further: in an entry of another network: kept
#   default: in the entry of the default network: freed
#   status: in status.podIPs alone: freed
#
# Usage: whereabouts-reconciler.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from
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

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pods "k8s.io/client-go/kubernetes/fake"

	"github.com/k8snetworkplumbingwg/whereabouts/pkg/api/whereabouts.cni.cncf.io/v1alpha1"
	pools "github.com/k8snetworkplumbingwg/whereabouts/pkg/generated/clientset/versioned/fake"
	"github.com/k8snetworkplumbingwg/whereabouts/pkg/logging"
	"github.com/k8snetworkplumbingwg/whereabouts/pkg/reconciler"
	"github.com/k8snetworkplumbingwg/whereabouts/pkg/storage/kubernetes"
)

func pod(name, networkStatus, ip string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{"k8s.v1.cni.cncf.io/network-status": networkStatus}},
		Status:     v1.PodStatus{Phase: v1.PodRunning, PodIP: ip, PodIPs: []v1.PodIP{{IP: ip}}},
	}
}

func main() {
	logging.SetLogStderr(false)
	reserved := map[string]v1alpha1.IPAllocation{}
	for i, name := range []string{"further", "default", "status"} {
		reserved[fmt.Sprint(i+1)] = v1alpha1.IPAllocation{PodRef: "default/" + name}
	}
	store := pools.NewSimpleClientset(&v1alpha1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "10.1.0.0-24", ResourceVersion: "1"},
		Spec:       v1alpha1.IPPoolSpec{Range: "10.1.0.0/24", Allocations: reserved},
	})
	cluster := pods.NewSimpleClientset(
		pod("further", `[{"name": "net", "ips": ["10.1.0.1"]}]`, "10.9.0.1"),
		pod("default", `[{"name": "net", "ips": ["10.1.0.2"], "default": true}]`, "10.1.0.2"),
		pod("status", "", "10.1.0.3"),
	)
	loop, err := reconciler.NewReconcileLooperWithClient(kubernetes.NewKubernetesClient(store, cluster))
	if err != nil {
		panic(err)
	}
	if _, err := loop.ReconcileIPPools(); err != nil {
		panic(err)
	}
	pool, err := store.WhereaboutsV1alpha1().IPPools("kube-system").Get(context.Background(), "10.1.0.0-24", metav1.GetOptions{})
	if err != nil {
		panic(err)
	}
	for i, text := range []string{
		"further: in an entry of another network",
		"default: in the entry of the default network",
		"status: in status.podIPs alone",
	} {
		outcome := "freed"
		if _, ok := pool.Spec.Allocations[fmt.Sprint(i+1)]; ok {
			outcome = "kept"
		}
		fmt.Printf("%s: %s\n", text, outcome)
	}
}
GO
go mod init example >/dev/null 2>&1
go get github.com/k8snetworkplumbingwg/whereabouts@v0.9.4 >/dev/null 2>&1 || exit 2
go mod tidy >/dev/null 2>&1 || exit 2
go run . >observed
cat observed
sed -n '/^# Output:/,/^#$/s/^#   //p' "$self" >expected
diff expected observed || { echo "the behaviour has changed: < expected, > observed" >&2; exit 1; }
