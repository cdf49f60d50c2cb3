package oracle_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/daemon/attachment"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/statedir"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

func kept(state string, claims ...string) oracle.Attachment {
	return oracle.Attachment{
		ContainerID: routerID, Owner: "router", Pool: "default", Network: "pods",
		State: state, IPs: []netip.Addr{addr("10.0.0.2")}, Claims: claims,
	}
}

func TestCompareAttachments(t *testing.T) {
	held := kept("held", "ipv4")
	another := held
	another.IPs = []netip.Addr{addr("10.0.0.3")}
	tests := map[string]struct {
		disk, list []oracle.Attachment
		want       []string
	}{
		"nothing":                     {},
		"the same":                    {disk: []oracle.Attachment{held}, list: []oracle.Attachment{held}},
		"only in the journal":         {disk: []oracle.Attachment{held}, want: []string{"only the journal has"}},
		"only in the list":            {list: []oracle.Attachment{held}, want: []string{"the journal does not have"}},
		"another state":               {disk: []oracle.Attachment{held}, list: []oracle.Attachment{kept("releasing", "ipv4")}, want: []string{": held", ": releasing"}},
		"missing claim":               {disk: []oracle.Attachment{kept("held")}, list: []oracle.Attachment{held}, want: []string{"claims []", "claims [ipv4]"}},
		"another address":             {disk: []oracle.Attachment{held}, list: []oracle.Attachment{another}, want: []string{"10.0.0.2", "10.0.0.3"}},
		"second one only in the list": {disk: []oracle.Attachment{held}, list: []oracle.Attachment{held, another}, want: []string{"the journal does not have"}},
	}
	for name, tt := range tests {
		wantError(t, name, oracle.CompareAttachments(tt.disk, tt.list), tt.want)
	}
}

func TestJournal(t *testing.T) {
	dir := t.TempDir()
	if got, err := oracle.Journal(filepath.Join(dir, "none")); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v; want nothing of a missing directory", got, err)
	}
	state, err := statedir.Lock(t.Context(), dir, statedir.Holder{}, nil)
	check.Must(t, err)
	j := journal.Open(state, journal.Options{})
	for _, r := range []attachment.Record{{
		ContainerID: routerID, Owner: "router", Pool: "default", Network: "pods", State: attachment.Held,
		Result:      call.Result{Addresses: []call.Address{{Prefix: netip.MustParsePrefix("10.0.0.2/24")}}},
		Claims:      []attachment.Family{attachment.IPv4},
		Invocations: []call.Invocation{{Network: "pods", Config: []byte(`{}`)}},
	}, {ContainerID: healthID, Owner: "health", Pool: "default", State: attachment.Tombstone}} {
		err = errors.Join(err, j.Write(r))
	}
	j.Close()
	check.Must(t, errors.Join(err, state.Close()))

	got, err := oracle.Journal(dir)
	if want := []oracle.Attachment{kept("held", "ipv4")}; err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	check.Must(t, os.WriteFile(filepath.Join(dir, "journal.db"), []byte("x"), 0o600))
	if got, err := oracle.Journal(dir); err == nil {
		t.Errorf("got %v of a damaged journal; want an error", got)
	}
}
