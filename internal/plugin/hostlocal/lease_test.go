package hostlocal

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

func TestParseLease(t *testing.T) {
	for name, c := range map[string]struct {
		text      string
		err       error
		is, known bool
	}{
		"complete":                  {"id\r\neth0", nil, true, true},
		"white space around":        {" \nid\r\neth0\r\n", nil, true, true},
		"another ID":                {"id2\r\neth0", nil, false, true},
		"another interface":         {"id\r\nnet1", nil, false, true},
		"longer interface":          {"id\r\neth01", nil, false, true},
		"beginning of an interface": {"id\r\net", nil, false, false},
		"ID only":                   {"id\r\n", nil, false, false},
		"beginning of the ID":       {"i", nil, false, false},
		"empty":                     {"", ErrEmpty, false, false},
		"white space":               {"\r\n", ErrEmpty, false, false},
		"zeros":                     {"\x00\x00", ErrUnexpected, false, false},
		"another line end":          {"id\neth0", ErrUnexpected, false, false},
		"three lines":               {"id\r\neth0\r\nmore", ErrUnexpected, false, false},
	} {
		lease, err := parse([]byte(c.text))
		if !errors.Is(err, c.err) {
			t.Errorf("%s: got error %v, want %v", name, err, c.err)
		}
		if is, known := lease.Is("id", "eth0"); err == nil && (is != c.is || known != c.known) {
			t.Errorf("%s: got is %v, known %v; want %v, %v", name, is, known, c.is, c.known)
		}
	}
}

func TestAddress(t *testing.T) {
	for name, want := range map[string]bool{
		"10.1.0.2": true, "fd00::5": true, "FD00::5": false, "fd00:0::5": false, "fd00::5%eth0": false,
		"lock": false, "last_reserved_ip.0": false, "10.1.0.02": false, "": false,
	} {
		if _, ok := Address(name); ok != want {
			t.Errorf("%q: got %v, want %v", name, ok, want)
		}
	}
}

// FuzzLease checks that a lookup takes a file for the attachment's exactly if CHECK and DEL of
// host-local do: the text without white space around it is the ID, a line end and the interface
// (backend/disk/backend.go, FindByID, ReleaseByID).
func FuzzLease(f *testing.F) {
	for _, text := range []string{"id\r\neth0", " id\r\neth0\n", "id\r\neth", "id", "", "\x00", "id\r\n\r\neth0", "other\r\neth0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		lease, err := parse([]byte(text))
		is, known := lease.Is("id", "eth0")
		forHostLocal := strings.TrimSpace(text) == "id\r\neth0"
		if err == nil && is && !forHostLocal {
			t.Errorf("%q is the lease, and not for host-local", text)
		}
		if (err != nil || known && !is) && forHostLocal {
			t.Errorf("%q is not the lease (%v), and is for host-local", text, err)
		}
		if err == nil && known && !is && strings.HasPrefix("id\r\neth0", text) {
			t.Errorf("%q may not have been written to its end, and is another's", text)
		}
	})
}

func TestList(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"lock": "", "last_reserved_ip.0": "10.1.0.2", "FD00::5": "", "10.1.0.2": "id\r\neth0", "fd00::2": "", "10.1.0.3": "\x00",
	} {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	root, err := os.OpenRoot(dir)
	check.Must(t, err)
	defer root.Close()
	all, err := List(root)
	if err != nil || len(all) != 3 {
		t.Fatalf("got %+v, %v; want three", all, err)
	}
	want := Lease{IP: netip.MustParseAddr("10.1.0.2"), ContainerID: "id", Interface: "eth0"}
	if all[0].Lease != want || all[0].Err != nil || !errors.Is(all[1].Err, ErrUnexpected) || !errors.Is(all[2].Err, ErrEmpty) {
		t.Errorf("got %+v", all)
	}
}
