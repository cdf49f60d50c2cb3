package main

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// components is a runner of the real host-local, and the context of an ADD.
func components(b testing.TB) (*plugin.Runner, call.Network, call.Invocation) {
	b.Helper()
	n := harness.NewNode(b)
	r, err := plugin.New(plugin.Options{
		BinDirs: []string{n.BinDir}, LockFile: filepath.Join(n.Dir, "locks"), IfName: "eth0", Timeout: time.Minute, Profiles: sync.OnceValues(profile.Load),
	})
	if err != nil {
		b.Fatal(err)
	}
	nw := call.Network{Name: network, IPAMType: "host-local", PluginConfig: []byte(`{"type":"cilium-cni","ipam":{"type":"host-local","dataDir":"` + n.StoreDir + `","ranges":[[{"subnet":"10.15.0.0/16"}]]}}`)}
	c, err := r.NewInvocation(context.Background(), nw, "a", owner)
	if err != nil {
		b.Fatal(err)
	}
	return r, nw, c
}

func BenchmarkNewInvocation(b *testing.B) {
	r, nw, _ := components(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.NewInvocation(context.Background(), nw, "a", owner); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDel(b *testing.B) {
	r, _, c := components(b)
	for b.Loop() {
		if err := r.Del(context.Background(), call.Call{Invocation: c}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkJournalWrite(b *testing.B) {
	r, _, c := components(b)
	result, err := r.Add(context.Background(), call.Call{Invocation: c})
	if err != nil {
		b.Fatal(err)
	}
	c.PrevResult, result.Raw = result.Raw, nil
	j, err := journal.Open(filepath.Join(b.TempDir(), "state"), journal.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = j.Close() })
	rec := record.Record{ContainerID: "a", Owner: owner, Pool: "default", State: record.Held, Network: network, Result: result, Invocations: []call.Invocation{c}}
	b.ReportAllocs()
	for b.Loop() {
		if err := j.Write(rec); err != nil {
			b.Fatal(err)
		}
	}
}
