package uninstall

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/delegated-ipam/delegated-ipam/internal/boltfile"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// The DEL of a runtime does not reach what the plugin has under an ID of the daemon.
func TestOfRuntime(t *testing.T) {
	const owner = "cni/c/eth0"
	own := call.Invocation{ContainerID: "c"}
	kept := call.Invocation{ContainerID: "cilium-agent-x-u1", KeepsLost: true}
	for name, c := range map[string]struct {
		record attachment.Record
		want   bool
	}{
		"container":          {attachment.Record{Owner: owner, State: attachment.Held, Invocations: []call.Invocation{own}}, true},
		"keeps a lost one":   {attachment.Record{Owner: owner, State: attachment.Held, Invocations: []call.Invocation{kept, own}}, false},
		"lent":               {attachment.Record{Owner: owner, State: attachment.Held, Invocations: []call.Invocation{own}, Lent: &attachment.Lent{}}, false},
		"ended":              {attachment.Record{Owner: owner, State: attachment.Releasing, Invocations: []call.Invocation{own}}, false},
		"owner of the agent": {attachment.Record{Owner: "router", State: attachment.Held, Invocations: []call.Invocation{own}}, false},
	} {
		check.Equal(t, name, ofRuntime(c.record), c.want)
	}
}

// A journal that is not damaged is not discarded: one of a newer version has records that this one cannot read.
func TestInUseNewerJournal(t *testing.T) {
	dir := ended(t)
	root, err := os.OpenRoot(dir)
	check.Must(t, err)
	defer root.Close()
	seal := func(key, text string) []byte {
		sum := crc32.Checksum([]byte(key+text), crc32.MakeTable(crc32.Castagnoli))
		return fmt.Appendf(nil, "%08x %s", sum, text)
	}
	f, err := boltfile.Create(root, "journal.db", func(tx *bbolt.Tx) error {
		metadata, err := tx.CreateBucket([]byte("metadata"))
		check.Must(t, err)
		records, err := tx.CreateBucket([]byte("records"))
		check.Must(t, err)
		return errors.Join(metadata.Put([]byte("file"), seal("file", `{"format":99}`)), records.Put([]byte("default\x00a"), []byte("new")))
	})
	check.Must(t, err)
	f.Close()
	wantRefused(t, dir, "journal.db", "start the version that has written it")
	check.Contains(t, check.Names(t, dir), "journal.db")
}
