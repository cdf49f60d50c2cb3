package bridge

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNodePods(t *testing.T) {
	pod := func(set func(p *corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "none"}}}}
		set(p)
		return usedPart(p)
	}
	for name, tt := range map[string]struct {
		set  func(p *corev1.Pod)
		want int
	}{
		"running":        {func(*corev1.Pod) {}, 1},
		"other spelling": {func(p *corev1.Pod) { p.Status.PodIPs[0].IP = "FD00:0::1" }, 1},
		"IPv4 in IPv6":   {func(p *corev1.Pod) { p.Status.PodIPs[0].IP = "::ffff:10.0.0.1" }, 1},
		"being deleted":  {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, 1},
		"host network":   {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, 0},
		"succeeded":      {func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, 0},
		"failed":         {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := newNodePods([]*corev1.Pod{pod(tt.set)}, true)
			if got.count != tt.want || len(got.ips) != tt.want || got.pending {
				t.Errorf("got %+v; want %d", got, tt.want)
			}
		})
	}
}

// Pods that cannot be listed are unknown, not none.
func TestNodePodsUnknown(t *testing.T) {
	if got := newNodePods(nil, false); !got.pending || got.ips != nil {
		t.Errorf("got %+v; want them pending, and no addresses", got)
	}
}

func TestExhaustionText(t *testing.T) {
	for text, want := range map[string]bool{
		"no IP addresses available in range set: 10.0.0.2-10.0.0.6":                      true,
		"Could not allocate IP in range: ip: 10.0.0.1 / - 10.0.0.6 / range: 10.0.0.0/29": true,
		"failed to request IPv4 addresses. IPAM allocated only 0":                        true,
		"range is exhausted":                                          true,
		"no available addresses":                                      true,
		"dial tcp 10.0.0.1:2379: connect: connection refused":         false,
		"failed to find plugin \"host-local\" in path [/opt/cni/bin]": false,
	} {
		t.Run(text, func(t *testing.T) {
			if got := exhaustedText.MatchString(text); got != want {
				t.Errorf("is %v, want %v", got, want)
			}
		})
	}
}
