package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/cmd/internal/cmdline"
	"github.com/delegated-ipam/delegated-ipam/internal/daemon/history"
)

func TestHistory(t *testing.T) {
	dir := t.TempDir()
	container := "cni/" + strings.Repeat("0123456789abcdef", 4) + "/eth0"
	put(t, filepath.Join(dir, "history.jsonl"), `{"time":"2026-03-01T10:00:00Z","event":"allocated","addresses":["10.15.0.2","fd00:15::2"],"owner":"router","pool":"default"}
{"time":"2026-03-01T10:00:01Z","event":"allocated","addresses":["10.15.0.3"],"owner":"`+container+`","pod":"kube-system/coredns-1","pool":"default"}
{"time":"2026-03-01T11:00:00Z","event":"freed","addresses":["10.15.0.2","2001:db8:1111:2222:3333:4444:5555:6666"],"owner":"router","pool":"default"}
{"time":"2026-03-01T11:00:00.5Z","event":"allocated","addresses":["10.15.0.2"],"owner":"`+container+`","pool":"default"}
{"time":"2026-03-01T12:00:00Z","event":"freed","addresses":["10.15.0.9"],"pool":"default","container-id":"cilium-agent-gone-0"}
{"time":"2026-03-01T11:0`)
	const title = "TIME                   EVENT       OWNER"
	for arg, want := range map[string]string{
		"": title + `                    ADDRESSES
2026-03-01T10:00:00Z   allocated   router                   10.15.0.2,fd00:15::2
2026-03-01T10:00:01Z   allocated   pod kube-sy…/coredns-1   10.15.0.3
2026-03-01T11:00:00Z   freed       router                   (below)
                                   10.15.0.2
                                   2001:db8:1111:2222:3333:4444:5555:6666
2026-03-01T11:00:00Z   allocated   cni/0123456…bcdef/eth0   10.15.0.2
2026-03-01T12:00:00Z   freed       lease ciliu…ent-gone-0   10.15.0.9
`,
		"10.15.0.3":        title + "                       ADDRESSES\n2026-03-01T10:00:01Z   allocated   pod kube-system/coredns-1   10.15.0.3\n",
		"::ffff:10.15.0.3": title + "                       ADDRESSES\n2026-03-01T10:00:01Z   allocated   pod kube-system/coredns-1   10.15.0.3\n",
		"kube-*":           title + "                       ADDRESSES\n2026-03-01T10:00:01Z   allocated   pod kube-system/coredns-1   10.15.0.3\n",
		"nobody":           "TIME   EVENT   OWNER   ADDRESSES\n",
	} {
		o := testDependencies(nil).exec(t, append([]string{"history", "--state-dir=" + dir}, strings.Fields(arg)...)...)
		o.wants(t, cmdline.ExitOK, want)
		wantNarrow(t, o.stdout)
	}
	var got []history.Event
	o := testDependencies(nil).exec(t, "history", "10.15.0.2", "-o=json", "--state-dir="+dir)
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil || len(got) != 3 || got[2].Owner != container {
		t.Errorf("got %s, %v; want three events", o.stdout, err)
	}
	testDependencies(nil).exec(t, "history", "-o=json", "--state-dir="+t.TempDir()).wants(t, cmdline.ExitOK, "[]\n")
	testDependencies(nil).exec(t, "history", "--state-dir="+filepath.Join(dir, "none")).wants(t, cmdline.ExitFailed, "", "history: state directory", "no such file")
	testDependencies(nil).exec(t, "history", "10.15.0.0/24", "--state-dir="+dir).wants(t, cmdline.ExitUsage, "", `IP is "10.15.0.0/24"`, "without a prefix length")
	testDependencies(nil).exec(t, "history", "\xff", "--state-dir="+dir).wants(t, cmdline.ExitUsage, "", "OWNER")
}
