package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cilium/cilium/api/v1/client/daemon"
	"github.com/cilium/cilium/api/v1/models"
	"github.com/cilium/cilium/pkg/client"
	gocni "github.com/containerd/go-cni"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestCiliumSock(t *testing.T) {
	n, _ := empty(t)
	t.Setenv("CILIUM_SOCK", n.Socket)
	c, err := client.NewDefaultClientWithTimeout(time.Minute)
	check.Must(t, err)
	allocate(t, c, "", "router", "", false)
}

func TestCiliumAllocate(t *testing.T) {
	t.Parallel()
	_, s := empty(t)
	c := ciliumClient(t, s)
	tests := map[string]struct {
		family, owner, pool string
		expiration          bool
		wantIPv4, wantIPv6  bool
	}{
		"no family":  {owner: "router", wantIPv4: true, wantIPv6: true},
		"IPv4":       {family: client.AddressFamilyIPv4, owner: "a", wantIPv4: true},
		"IPv6":       {family: client.AddressFamilyIPv6, owner: "b", wantIPv6: true},
		"no owner":   {wantIPv4: true, wantIPv6: true},
		"named pool": {owner: "c", pool: "default", wantIPv4: true, wantIPv6: true},
		"expiration": {owner: "kube-system/pod", expiration: true, wantIPv4: true, wantIPv6: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := allocate(t, c, tt.family, tt.owner, tt.pool, tt.expiration)
			a := got.Address
			wantFamily(t, tt.wantIPv4, tt.expiration, a.IPv4, a.IPv4PoolName, a.IPv4ExpirationUUID, got.IPv4)
			wantFamily(t, tt.wantIPv6, tt.expiration, a.IPv6, a.IPv6PoolName, a.IPv6ExpirationUUID, got.IPv6)
			wantHostAddressing(t, got.HostAddressing)
		})
	}
}

func TestCiliumRestoreRelease(t *testing.T) {
	t.Parallel()
	n, s := empty(t)
	c := ciliumClient(t, s)
	for _, ip := range []string{"10.15.0.9", "fd00:15::9"} {
		owner := "owner of " + ip
		check.Must(t, c.IPAMAllocateIP(ip, owner, ""))
		check.Must(t, c.IPAMAllocateIP(ip, owner, "default"))
		check.Must(t, c.IPAMReleaseIP(ip, ""))
	}
	if left := n.Leases(t); len(left) != 0 {
		t.Errorf("the store of the plugin has %v", left)
	}
	// A restore confirms an allocation that would expire.
	check.Must(t, c.IPAMAllocateIP(allocate(t, c, "", "router", "", true).Address.IPv4, "router", ""))
	if a := s.Attachment(t, "router"); a == nil || a.Expiration != nil {
		t.Errorf("after the restore the list has %+v; want no expiration", a)
	}
}

func TestCiliumStatusAndConfig(t *testing.T) {
	t.Parallel()
	_, s := routerHolds(t)
	c := ciliumClient(t, s)
	health, err := c.Daemon.GetHealthz(daemon.NewGetHealthzParams())
	check.Must(t, err)
	var brief, full bytes.Buffer
	client.FormatStatusResponseBrief(&brief, health.Payload)
	if got := brief.String(); got != "OK\n" {
		t.Errorf("the brief status is %q; want OK", got)
	}
	client.FormatStatusResponse(&full, health.Payload, client.StatusAllDetails)
	if !strings.Contains(full.String(), "10.15.0.2 (router)") {
		t.Errorf("the status lacks the address of the router:\n%s", &full)
	}
	config, err := c.ConfigGet()
	check.Must(t, err)
	if got := config.Status.IpamMode; got != "delegated-plugin" {
		t.Errorf("the IPAM mode is %q; want delegated-plugin", got)
	}
	wantHostAddressing(t, config.Status.Addressing)
}

func ciliumClient(t *testing.T, s *harness.Daemon) *client.Client {
	t.Helper()
	c, err := client.NewClient("unix://" + s.Socket)
	check.Must(t, err)
	return c
}

func allocate(t *testing.T, c *client.Client, family, owner, pool string, expiration bool) *models.IPAMResponse {
	t.Helper()
	got, err := c.IPAMAllocate(family, owner, pool, expiration)
	check.Must(t, err)
	if err := got.Validate(nil); err != nil {
		t.Fatalf("the response is not valid for Cilium's model: %v", err)
	}
	return got
}

// wantFamily checks that the response has one family as cilium-cni needs it, or lacks it.
func wantFamily(t *testing.T, want, expiring bool, ip, pool, uuid string, details *models.IPAMAddressResponse) {
	t.Helper()
	if !want {
		if ip != "" || details != nil {
			t.Errorf("got %q, %+v for a family that was not requested", ip, details)
		}
		return
	}
	if _, err := netip.ParseAddr(ip); err != nil || pool != "default" || details == nil || details.IP != ip {
		t.Fatalf("got %q of %q (%v), %+v; want an address, without a prefix length, of default in both", ip, pool, err, details)
	}
	if expiring != (uuid != "") || details.ExpirationUUID != uuid {
		t.Errorf("the expiration UUIDs of %s are %q and %q; expiration was %t", ip, uuid, details.ExpirationUUID, expiring)
	}
	if _, err := netip.ParseAddr(details.Gateway); err != nil {
		t.Errorf("the gateway of %s is %q: %v", ip, details.Gateway, err)
	}
}

func wantHostAddressing(t *testing.T, got *models.NodeAddressing) {
	t.Helper()
	if got == nil || got.IPv4 == nil || got.IPv6 == nil || !got.IPv4.Enabled || !got.IPv6.Enabled ||
		got.IPv4.IP != "10.15.0.1" || got.IPv6.IP != "fd00:15::1" {
		t.Errorf("host-addressing is %+v; want the router's address of both families", got)
	}
}

// envCiliumDbg has the path of the real cilium-dbg. It takes minutes to build, so only
// `make cilium-dbg-test` sets it.
const envCiliumDbg = "DELEGATED_IPAM_TEST_CILIUM_DBG"

func TestCiliumDbg(t *testing.T) {
	t.Parallel()
	program := os.Getenv(envCiliumDbg)
	if program == "" {
		t.Skipf("$%s is not set; make cilium-dbg-test builds cilium-dbg and sets it", envCiliumDbg)
	}
	tests := map[string]struct {
		start startFunc
		flags []string
		code  int
		want  string
	}{
		"ready":                   {routerHolds, nil, 0, "cilium-dbg-status-ready"},
		"ready, brief":            {routerHolds, []string{"--brief"}, 0, "cilium-dbg-status-ready-brief"},
		"ready, verbose":          {routerHolds, []string{"--verbose"}, 0, "cilium-dbg-status-ready-verbose"},
		"ready, JSON":             {routerHolds, []string{"-o", "json"}, 0, "cilium-dbg-status-ready-json"},
		"not ready":               {noConfiguration, nil, 1, "cilium-dbg-status-not-ready"},
		"not ready, brief":        {noConfiguration, []string{"--brief"}, 1, "cilium-dbg-status-not-ready-brief"},
		"plugin not ready, brief": {statusFails, []string{"--brief"}, 1, "cilium-dbg-status-waiting-brief"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, _ := tt.start(t)
			cmd := exec.CommandContext(t.Context(), program, append([]string{"--host=unix://" + n.Socket, "status"}, tt.flags...)...)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if code := cmd.ProcessState.ExitCode(); code != tt.code || stderr.Len() > 0 {
				t.Errorf("exit status %d (%v), stderr %q; want %d", code, err, &stderr, tt.code)
			}
			compareGolden(t, tt.want+".txt", replaceNode(n, string(out)))
		})
	}
}

// statusFails starts a daemon with a plugin whose STATUS fails.
func statusFails(t *testing.T) (*harness.Node, *harness.Daemon) {
	t.Helper()
	n := nodeWith(t, harness.Network{Name: "pods", CNIVersion: "1.1.0", Plugin: "scripted"})
	n.InstallScript(t, "scripted", strings.Replace(version, `"1.0.0"]`, `"1.0.0","1.1.0"]`, 1)+
		`echo '{"cniVersion":"1.1.0","code":50,"msg":"the datastore is away"}'; exit 1`)
	s := n.Launch(t)
	harness.Eventually(t, "the daemon to report the error of STATUS", func() error {
		if err := s.Ready(); err == nil || !strings.Contains(err.Error(), "the datastore is away") {
			return fmt.Errorf("it reports %v", err)
		}
		return nil
	})
	return n, s
}

// containerd takes some errors of a DEL for success, so the addresses would stay allocated. Its own
// client must see each failed DEL.
func TestContainerdSeesFailedDel(t *testing.T) {
	for name, msg := range map[string]string{
		"not found": "link eth0 not found", "no file": "open /var/lib/x: no such file or directory",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "code": 999, "msg": msg})
			check.Must(t, err)
			n := harness.NewNode(t)
			n.PodsThrough(t, "05-cilium", harness.Network{Name: "pods", CNIVersion: "1.0.0", Plugin: "scripted"})
			n.InstallScript(t, "scripted", version+"cat <<'END'\n"+string(answer)+"\nEND\nexit 1\n")
			launch(t, n)
			list, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "pods", "plugins": []any{map[string]any{
				"type": "delegated-ipam-cni", "ipam": map[string]any{"type": "delegated-ipam-cni", "socket": n.Socket, "delegate": map[string]any{"type": "scripted"}},
			}}})
			check.Must(t, err)
			client, err := gocni.New(gocni.WithPluginDir([]string{n.BinDir}), gocni.WithConfListBytes(list), gocni.WithPluginConfDir(n.ConfDir))
			check.Must(t, err)
			for _, path := range []string{"", "/var/run/netns/none"} {
				if err := client.Remove(t.Context(), "0123abcd", path); err == nil {
					t.Errorf("namespace %q: containerd's client takes the failed DEL for success", path)
				}
			}
		})
	}
}
