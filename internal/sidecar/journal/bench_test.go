package journal

import (
	"os"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// benchDir returns a directory on the disk of the checkout: b.TempDir may be in memory.
func benchDir(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp("testdata", "bench-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			b.Error(err)
		}
	})
	return dir
}

// typicalRecord returns a record of the size that host-local needs.
func typicalRecord(b *testing.B) record.Record {
	b.Helper()
	set, err := profile.Load()
	if err != nil {
		b.Fatal(err)
	}
	r := sample("cilium-agent-kube-system-pod-0123456789abcdef")
	c := &r.Invocations[0]
	c.ContainerID, c.CNIVersion, c.Plugin, c.IfName = r.ContainerID, "1.1.0", "host-local", "eth0"
	c.Binary, c.Path, c.NetNS = "/opt/cni/bin/host-local", "/opt/cni/bin", "/var/run/delegated-ipam/none"
	c.Config = []byte(`{"cniVersion":"1.1.0","name":"net","type":"cilium-cni","ipam":{"type":"host-local","dataDir":"/var/lib/cni/networks","ranges":[[{"subnet":"10.1.0.0/16"}]]}}`)
	c.PrevResult = []byte(`{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.7/24","gateway":"10.1.0.1"}],"dns":{}}`)
	c.Profile = set.For("host-local")
	return r
}

func BenchmarkEncode(b *testing.B) {
	r, j := typicalRecord(b), &Journal{}
	data, err := j.encode(r)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := j.encode(r); err != nil {
			b.Fatal(err)
		}
	}
}

// An allocation is two writes, a release one write and the removal.
func BenchmarkWriteAndRemoveOnDisk(b *testing.B) {
	j, err := Open(benchDir(b), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = j.Close() })
	r := typicalRecord(b)
	b.ReportAllocs()
	for b.Loop() {
		for _, state := range []record.State{record.Adding, record.Held, record.Releasing} {
			r.State = state
			if err := j.Write(r); err != nil {
				b.Fatal(err)
			}
		}
		if err := j.Remove(r.ContainerID); err != nil {
			b.Fatal(err)
		}
	}
}
