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
	"github.com/delegated-ipam/delegated-ipam/test/bridge/apiserver"
)

// connect returns the cluster of an API server.
func connect(t *testing.T, s *apiserver.Server) *Cluster {
	t.Helper()
	config, err := kube.CommandConfig(s.Kubeconfig(t), "test")
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// names is a list of names that starts again with each begin.
type names struct {
	got    []string
	begins int
}

func (n *names) begin() func(string) {
	n.begins++
	n.got = nil
	return func(name string) { n.got = append(n.got, name) }
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
				for what, read := range map[string]func(n *names) error{
					"CiliumNodes": func(n *names) error {
						return c.CiliumNodes(t.Context(), func() func(*ciliumnode.Node) {
							add := n.begin()
							return func(got *ciliumnode.Node) {
								if got.Spec.IPAM.Pool["10.0.0.1"].Resource != got.Metadata.Name {
									t.Errorf("read %+v; want its pool", got)
								}
								add(got.Metadata.Name)
							}
						})
					},
				} {
					s.ExpireLists(expired)
					var n names
					if err := read(&n); err != nil || !slices.Equal(n.got, want) {
						t.Errorf("%s: read %d names, %v; want %d", what, len(n.got), err, len(want))
					}
					begins := 1
					if count > pageSize {
						begins += expired
					}
					if n.begins != begins {
						t.Errorf("%s: begun %d times; want %d", what, n.begins, begins)
					}
				}
				s.ExpireLists(expired)
				if nodes, err := c.Nodes(t.Context()); err != nil || len(nodes) != count || count > 0 && !slices.Equal(nodes[want[0]], []string{"10.0.0.0/24"}) {
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
	var n names
	err := connect(t, s).CiliumNodes(t.Context(), func() func(*ciliumnode.Node) {
		n.begin()
		return func(*ciliumnode.Node) {}
	})
	if err == nil || !strings.Contains(err.Error(), "expired") || n.begins != maxRestarts+1 {
		t.Errorf("ended after %d begins with %v; want an error after %d", n.begins, err, maxRestarts+1)
	}
}

func TestPods(t *testing.T) {
	s := apiserver.Start(t)
	pod := func(name, app, ready string, deleted any) {
		s.Add("pods", apiserver.Object{
			"metadata": apiserver.Object{"name": name, "namespace": "kube-system", "labels": apiserver.Object{"app.kubernetes.io/name": app}, "deletionTimestamp": deleted},
			"spec":     apiserver.Object{"nodeName": "on-" + name},
			"status":   apiserver.Object{"conditions": []any{apiserver.Object{"type": "Initialized", "status": "True"}, apiserver.Object{"type": "Ready", "status": ready}}},
		})
	}
	pod("a", "delegated-ipam-bridge", "True", nil)
	pod("b", "delegated-ipam-bridge", "False", nil)
	pod("c", "delegated-ipam-bridge", "True", "2026-11-22T15:04:05Z")
	pod("d", "another", "True", nil)
	s.Add("pods", apiserver.Object{"metadata": apiserver.Object{"name": "e", "namespace": "x", "labels": apiserver.Object{"app.kubernetes.io/name": "delegated-ipam-bridge"}}})
	address := func(name, phase string, hostNetwork bool) {
		s.Add("pods", apiserver.Object{
			"metadata": apiserver.Object{"name": name, "namespace": "y"}, "spec": apiserver.Object{"nodeName": "on-" + name, "hostNetwork": hostNetwork},
			"status": apiserver.Object{"phase": phase, "startTime": "2026-11-22T15:04:05Z", "podIPs": []any{apiserver.Object{"ip": "10.0.0.1"}, apiserver.Object{"ip": "fd00::1"}}},
		})
	}
	address("f", "Running", false)
	address("g", "Running", true)
	address("h", "Succeeded", false)
	address("i", "Pending", false)
	var addresses []string
	got, all, err := connect(t, s).Pods(t.Context())
	for _, a := range all {
		addresses = append(addresses, fmt.Sprintf("%s %s %s %s", a.Pod, a.Node, a.IP, a.Since.UTC()))
	}
	var want []string
	for _, pod := range []string{"y/f on-f", "y/i on-i"} {
		for _, ip := range []string{"10.0.0.1", "fd00::1"} {
			want = append(want, pod+" "+ip+" 2026-11-22 15:04:05 +0000 UTC")
		}
	}
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
	s := apiserver.Start(t)
	s.NoCiliumNodes()
	err := connect(t, s).CiliumNodes(t.Context(), func() func(*ciliumnode.Node) { return nil })
	if err == nil || !strings.Contains(err.Error(), "cluster with Cilium") || errors.Unwrap(err) == nil {
		t.Errorf("ended with %v; want that Cilium is expected", err)
	}
}
