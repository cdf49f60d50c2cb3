package harness

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// maxSocketPath is the longest path of a unix socket (unix(7), sun_path).
const maxSocketPath = 107

// Node is the part of a machine that a daemon works with. Daemons can be started on it one
// after the other.
type Node struct {
	// Name is --node-name. It is unique to the test: a second daemon of one
	// node and network is refused.
	Name string
	// Dir is the parent of the following directories and the socket.
	Dir string
	// ConfDir and BinDir are --cni-conf-dir and --cni-bin-dir.
	ConfDir, BinDir string
	// StateDir is --state-dir.
	StateDir string
	// StoreDir is host-local's dataDir.
	StoreDir string
	// Socket is --socket-path.
	Socket string
	// Flags are passed to every daemon of the node.
	Flags []string
	// Store returns the leases in the plugin's own files: host-local's by default, nil if the
	// files cannot be compared with the list.
	Store func() ([]oracle.Lease, error)
	// Without names flags that ServeArgs leaves out, such as "--log-level".
	Without []string
	// Env holds NAME=value settings for every process of the node.
	Env []string
	// Program replaces the binary under test, if not empty.
	Program string
	// Wrapper is a command, such as setpriv, that executes the daemon's command line; it
	// must exec the daemon, because signals are sent to its process. Empty for none.
	Wrapper []string
	// history records the requests of the node's clients and their responses.
	history *clientHistory
	// boots counts the reboots of the node.
	boots int
}

// NewNode creates the directories of a node with the real host-local in BinDir and no CNI
// configuration. They are removed with the test.
func NewNode(t testing.TB) *Node {
	t.Helper()
	dir := tempDir(t)
	n := &Node{
		Name:     filepath.Base(dir),
		Dir:      dir,
		ConfDir:  filepath.Join(dir, "net.d"),
		BinDir:   filepath.Join(dir, "bin"),
		StateDir: filepath.Join(dir, "state"),
		StoreDir: filepath.Join(dir, "store"),
		Socket:   filepath.Join(dir, "ipam.sock"),
		history:  newClientHistory(),
	}
	if len(n.Socket) > maxSocketPath {
		t.Fatalf("socket path too long: %s has %d bytes, at most %d are allowed; set TMPDIR to a shorter path", n.Socket, len(n.Socket), maxSocketPath)
	}
	for _, d := range []string{n.ConfDir, n.BinDir} {
		check.Must(t, os.Mkdir(d, 0o755))
	}
	n.Store = func() ([]oracle.Lease, error) { return oracle.HostLocal(n.StoreDir) }
	n.InstallPlugin(t, "host-local")
	return n
}

// tempDir is t.TempDir with a short path, because the path of a socket is limited.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dip-")
	check.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Client returns a client of the node's socket.
func (n *Node) Client() Client { return Client{Socket: n.Socket, history: n.history} }

// Leases returns the leases of the plugin.
func (n *Node) Leases(t testing.TB) []oracle.Lease {
	t.Helper()
	leases, err := n.Store()
	check.Must(t, err)
	return leases
}

// WipeStore deletes host-local's store.
func (n *Node) WipeStore(t testing.TB) {
	t.Helper()
	n.ResetHistory()
	check.Must(t, os.RemoveAll(n.StoreDir))
}

// WipeJournal deletes the journal of a stopped daemon.
func (n *Node) WipeJournal(t testing.TB) {
	t.Helper()
	n.ResetHistory()
	check.Must(t, os.RemoveAll(n.StateDir))
}

// DamageRecord changes the record of an owner in the journal of a stopped daemon, as a disk error may.
func (n *Node) DamageRecord(t testing.TB, pool, owner string) {
	t.Helper()
	n.ResetHistory()
	db, err := bbolt.Open(filepath.Join(n.StateDir, "journal.db"), 0o600, nil)
	check.Must(t, err)
	check.Must(t, db.Update(func(tx *bbolt.Tx) error {
		records, key := tx.Bucket([]byte("records")), []byte(pool+"\x00"+owner)
		value := slices.Clone(records.Get(key))
		if len(value) < 100 {
			return fmt.Errorf("no record of owner %q in pool %q", owner, pool)
		}
		value[99] ^= 1
		return records.Put(key, value)
	}))
	check.Must(t, db.Close())
}

// Network is a CNI network configuration whose chain delegates IPAM.
type Network struct {
	// Name is the network's name.
	Name string
	// Subnets are host-local's ranges, one for each family.
	Subnets []string
	// CNIVersion is the configuration's cniVersion.
	CNIVersion string
	// Plugin is the IPAM plugin's type; empty for host-local.
	Plugin string
	// IPAM overrides keys of the ipam section, or adds them.
	IPAM map[string]any
	// Socket is that of the daemon through which pods get their addresses; empty if they get them
	// from the plugin. Spool is the directory for its DELs while it is away.
	Socket, Spool string
}

// IPv4Only returns a network with one IPv4 range.
func IPv4Only() Network {
	return Network{Name: "pods", Subnets: []string{"10.15.0.0/24"}, CNIVersion: "0.3.1"}
}

// DualStack returns a network with a range of each family.
func DualStack() Network {
	return Network{Name: "pods", Subnets: []string{"10.15.0.0/24", "fd00:15::/112"}, CNIVersion: "1.0.0"}
}

// WriteNetwork writes a network into NAME.conflist in ConfDir atomically, as an installer does.
func (n *Node) WriteNetwork(t testing.TB, name string, nw Network) {
	t.Helper()
	plugin := map[string]any{"type": "cilium-cni", "ipam": nw.ipam(n.StoreDir)}
	document := map[string]any{"cniVersion": nw.CNIVersion, "name": nw.Name, "plugins": []any{plugin}}
	data, err := json.MarshalIndent(document, "", "  ")
	check.Must(t, err)
	n.WriteConf(t, name+".conflist", data)
}

// WriteConf writes a file with any content into ConfDir atomically.
func (n *Node) WriteConf(t testing.TB, file string, data []byte) {
	t.Helper()
	path := filepath.Join(n.ConfDir, file)
	check.Must(t, os.WriteFile(path+".new", data, 0o644))
	check.Must(t, os.Rename(path+".new", path))
}

func (nw Network) ipam(dataDir string) map[string]any {
	section := map[string]any{"type": nw.Plugin}
	if nw.Plugin == "" {
		var ranges [][]map[string]string
		for _, subnet := range nw.Subnets {
			ranges = append(ranges, []map[string]string{{"subnet": subnet}})
		}
		section = map[string]any{"type": "host-local", "dataDir": dataDir, "ranges": ranges}
	}
	maps.Copy(section, nw.IPAM)
	if nw.Socket != "" {
		section = map[string]any{"type": cniPlugin, "socket": nw.Socket, "delegate": section}
		if nw.Spool != "" {
			section["spool"] = nw.Spool
		}
	}
	return section
}
