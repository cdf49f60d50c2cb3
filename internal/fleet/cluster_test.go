package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/bridge/ciliumnode"
	"github.com/delegated-ipam/delegated-ipam/internal/fleet/audit"
	"github.com/delegated-ipam/delegated-ipam/internal/kube"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
)

func connect(t *testing.T, s *apiserver.Server) *Cluster {
	t.Helper()
	config, err := kube.CommandConfig(s.Kubeconfig(t), "test")
	check.Must(t, err)
	config.QPS = -1
	c, err := New(config)
	check.Must(t, err)
	return c
}

func TestPages(t *testing.T) {
	for _, count := range []int{0, 1, pageSize - 1, pageSize, pageSize + 1, 2*pageSize + 200} {
		for expired := range 3 {
			t.Run(fmt.Sprintf("%d objects, %d expired", count, expired), func(t *testing.T) {
				s := apiserver.Start(t)
				var want []string
				for i := range count {
					name := fmt.Sprintf("worker-%05d", i)
					want = append(want, name)
					s.Create(name, apiserver.Object{"ipam": apiserver.Object{"pool": apiserver.Object{"10.0.0.1": apiserver.Object{"resource": name}}}})
					s.Add("nodes", apiserver.Object{"metadata": apiserver.Object{"name": name}, "spec": apiserver.Object{"podCIDRs": []string{"10.0.0.0/24"}}})
				}
				c := connect(t, s)
				s.ExpireLists(expired)
				var got []string
				begins := 0
				err := c.CiliumNodes(t.Context(), func() func(*ciliumnode.Node) {
					begins++
					got = nil
					return func(n *ciliumnode.Node) {
						if n.Spec.IPAM.Pool["10.0.0.1"].Resource != n.Metadata.Name {
							t.Errorf("read %+v; want its pool", n)
						}
						got = append(got, n.Metadata.Name)
					}
				})
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("read %d CiliumNodes, %v; want %d", len(got), err, len(want))
				}
				if count <= pageSize && begins != 1 || count > pageSize && begins != 1+expired {
					t.Errorf("begun %d times", begins)
				}
				s.ExpireLists(expired)
				nodes, err := c.Nodes(t.Context())
				if err != nil || len(nodes) != count || count > 0 && !slices.Equal(nodes[want[0]], []string{"10.0.0.0/24"}) {
					t.Errorf("read %d Nodes, %v; want %d with their podCIDRs", len(nodes), err, count)
				}
				s.ExpireLists(expired)
				if uids, err := c.NodeUIDs(t.Context()); err != nil || len(uids) != count {
					t.Errorf("read %d UIDs, %v; want %d", len(uids), err, count)
				}
			})
		}
	}
}

// A client that writes to a CiliumNode chooses the numbers of its slots.
func TestPools(t *testing.T) {
	s := apiserver.Start(t)
	pool := apiserver.Object{}
	for i, resource := range []string{
		"delegated-ipam/ciliumnode-0", "delegated-ipam/ciliumnode-7", "eni-1", "delegated-ipam/ciliumnode-009",
		"delegated-ipam/ciliumnode-1024", "delegated-ipam/ciliumnode-9223372036854775806",
	} {
		pool[fmt.Sprintf("10.0.0.%d", i)] = apiserver.Object{"resource": resource}
	}
	s.Create("a", apiserver.Object{"ipam": apiserver.Object{"pool": pool}})
	s.Add("nodes", apiserver.Object{"metadata": apiserver.Object{"name": "a", "uid": "a-1"}})
	c := connect(t, s)
	pools, err := c.Pools(t.Context())
	if err != nil || len(pools) != 1 || pools["a"].Slots != 8 {
		t.Errorf("got the pools %v, %v; want 8 slots of a", pools, err)
	}
	uids, err := c.NodeUIDs(t.Context())
	if err != nil || len(uids) != 1 || uids["a"] != "a-1" {
		t.Errorf("got the UIDs %v, %v; want a-1", uids, err)
	}
}

func TestAlwaysExpired(t *testing.T) {
	s := apiserver.Start(t)
	for i := range pageSize + 1 {
		s.Create(fmt.Sprint(i), apiserver.Object{})
	}
	s.ExpireLists(1 << 30)
	begins := 0
	err := connect(t, s).CiliumNodes(t.Context(), func() func(*ciliumnode.Node) {
		begins++
		return func(*ciliumnode.Node) {}
	})
	if err == nil || !strings.Contains(err.Error(), "expired") || begins != maxRestarts+1 {
		t.Errorf("ended after %d begins with %v; want an error after %d", begins, err, maxRestarts+1)
	}
}

func TestPods(t *testing.T) {
	s := apiserver.Start(t)
	pod := func(name, namespace string, labels, spec, status apiserver.Object, deleted any) {
		s.Add("pods", apiserver.Object{
			"metadata": apiserver.Object{"name": name, "namespace": namespace, "labels": labels, "deletionTimestamp": deleted},
			"spec":     spec, "status": status,
		})
	}
	bridge := func(name, app, ready string, deleted any) {
		conditions := []any{apiserver.Object{"type": "Initialized", "status": "True"}, apiserver.Object{"type": "Ready", "status": ready}}
		pod(name, "kube-system", apiserver.Object{nameLabel: app}, apiserver.Object{"nodeName": "on-" + name},
			apiserver.Object{"conditions": conditions}, deleted)
	}
	bridge("a", bridgeName, "True", nil)
	bridge("b", bridgeName, "False", nil)
	bridge("c", bridgeName, "True", "2026-11-22T15:04:05Z")
	bridge("d", "another", "True", nil)
	pod("e", "x", apiserver.Object{nameLabel: bridgeName}, nil, nil, nil)
	for name, phase := range map[string]string{"f": "Running", "g": "Running", "h": "Succeeded", "i": "Pending"} {
		ips := []any{apiserver.Object{"ip": "10.0.0.1"}, apiserver.Object{"ip": "fd00::1"}}
		pod(name, "y", nil, apiserver.Object{"nodeName": "on-" + name, "hostNetwork": name == "g"},
			apiserver.Object{"phase": phase, "startTime": "2026-11-22T15:04:05Z", "podIPs": ips, "conditions": []any{apiserver.Object{"type": "Ready", "status": map[bool]string{true: "True", false: "False"}[phase == "Running"]}}}, nil)
	}
	var addresses []string
	got, all, err := connect(t, s).Pods(t.Context())
	for _, a := range all {
		addresses = append(addresses, fmt.Sprintf("%s %s %s %s %t", a.Pod, a.Node, a.IP, a.Since.UTC(), a.Ready))
	}
	const started = " 2026-11-22 15:04:05 +0000 UTC"
	want := []string{"y/f on-f 10.0.0.1" + started + " true", "y/f on-f fd00::1" + started + " true", "y/i on-i 10.0.0.1" + started + " false", "y/i on-i fd00::1" + started + " false"}
	slices.Sort(addresses)
	if !slices.Equal(addresses, want) {
		t.Errorf("the addresses of pods are %q; want %q", addresses, want)
	}
	wantPods := []audit.Pod{
		{Name: "kube-system/a", Node: "on-a", Ready: true}, {Name: "kube-system/b", Node: "on-b"}, {Name: "kube-system/c", Node: "on-c"}, {Name: "x/e"},
	}
	if err != nil || !slices.Equal(got, wantPods) {
		t.Errorf("read %+v, %v; want %+v", got, err, wantPods)
	}
}

func TestErrors(t *testing.T) {
	s := apiserver.Start(t)
	c := connect(t, s)
	for name, tt := range map[string]struct {
		set  func()
		want string
	}{
		"forbidden": {func() { s.Up(); s.Allow(func(apiserver.Permission) bool { return false }) }, "delegated-ipam-audit"},
		"down":      {s.Down, "list "},
	} {
		tt.set()
		_, errNodes := c.Nodes(t.Context())
		_, _, errPods := c.Pods(t.Context())
		for what, err := range map[string]error{
			"CiliumNodes": c.CiliumNodes(t.Context(), func() func(*ciliumnode.Node) { return nil }),
			"Nodes":       errNodes,
			"Pods":        errPods,
		} {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %s ends with %v; want %q in it", name, what, err, tt.want)
			}
		}
	}
}

func TestNoCiliumNodes(t *testing.T) {
	u, _ := new(daemonSets).start(t)
	err := u.Cluster.CiliumNodes(t.Context(), func() func(*ciliumnode.Node) { return nil })
	if err == nil || !strings.Contains(err.Error(), "cluster with Cilium") || errors.Unwrap(err) == nil {
		t.Errorf("ended with %v; want that Cilium is expected", err)
	}
}
