package harness

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// maxSocketPath is the longest path of a unix socket (unix(7), sun_path).
const maxSocketPath = 107

// Node is the part of a machine that a sidecar works with. A sidecar may be
// started on it, stopped and started again.
type Node struct {
	// Name is --node-name. It is unique to the test: a second sidecar of one
	// node and network is refused.
	Name string
	// Dir holds everything else.
	Dir string
	// ConfDir and BinDir are --cni-conf-dir and --cni-bin-dir.
	ConfDir, BinDir string
	// StateDir is --state-dir.
	StateDir string
	// StoreDir is host-local's dataDir.
	StoreDir string
	// Socket is --socket-path.
	Socket string
	// Flags are those that every sidecar of the node gets.
	Flags []string
	// Store returns what the plugin holds by its own files: host-local's unless a
	// test says otherwise; nil where no files of the plugin can be compared.
	Store func() ([]oracle.Lease, error)
	// Env are NAME=value settings that every process of the node gets.
	Env []string
	// Program is run in place of the binary under test; empty for that one.
	Program string
	// Under is a command that runs the sidecar's command line, such as setpriv; it
	// must become the sidecar itself, because signals go to it. Empty for none.
	Under []string
	// answers is what the node's clients were told.
	answers *answers
	// boots is how often the node was rebooted.
	boots int
}

// NewNode makes the folders of a node with the real host-local in BinDir and
// no CNI configuration. They go away with the test.
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
		answers:  newAnswers(),
	}
	if len(n.Socket) > maxSocketPath {
		t.Fatalf("the socket's path %s has %d bytes; set TMPDIR to a folder short enough for %d", n.Socket, len(n.Socket), maxSocketPath)
	}
	for _, d := range []string{n.ConfDir, n.BinDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.Store = func() ([]oracle.Lease, error) { return oracle.HostLocal(n.StoreDir) }
	n.InstallPlugin(t, "host-local")
	return n
}

// Client returns a client of the node's socket.
func (n *Node) Client() Client { return Client{Socket: n.Socket, answers: n.answers} }

// Leases returns what the plugin holds.
func (n *Node) Leases(t testing.TB) []oracle.Lease {
	t.Helper()
	leases, err := n.Store()
	if err != nil {
		t.Fatal(err)
	}
	return leases
}

// WipeStore loses everything that host-local holds.
func (n *Node) WipeStore(t testing.TB) {
	t.Helper()
	n.ForgetAnswers()
	if err := os.RemoveAll(n.StoreDir); err != nil {
		t.Fatal(err)
	}
}

// WipeJournal loses everything that a stopped sidecar knows.
func (n *Node) WipeJournal(t testing.TB) {
	t.Helper()
	n.ForgetAnswers()
	if err := os.RemoveAll(n.StateDir); err != nil {
		t.Fatal(err)
	}
}

// DamageRecord cuts the record of a container ID off in the middle, as a disk
// error would.
func (n *Node) DamageRecord(t testing.TB, containerID string) {
	t.Helper()
	n.ForgetAnswers()
	names, err := filepath.Glob(filepath.Join(n.StateDir, "attachments", containerID+"*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("records of %s: %q, %v; want one", containerID, names, err)
	}
	info, err := os.Stat(names[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(names[0], info.Size()/2); err != nil {
		t.Fatal(err)
	}
}
