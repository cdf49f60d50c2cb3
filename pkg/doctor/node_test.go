package doctor

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/go-openapi/strfmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/hostlocal"
	"github.com/delegated-ipam/delegated-ipam/pkg/unixsock"
)

func TestTheOptionsAreThoseOfTheSidecarAndCanBeUsed(t *testing.T) {
	judge(t, map[string]judged{
		"doctor's own":                  {Options{}.findings(), []string{"ok options"}, []string{"serve would have here"}},
		"the sidecar's":                 {Options{FromSidecar: true}.findings(), []string{"ok options"}, []string{"the sidecar runs with"}},
		"one that is refused":           {Options{Refused: []error{errors.New("--owners is wrong")}}.findings(), []string{"error options"}, []string{"--owners is wrong", "does not start"}},
		"two, and none to go by":        {Options{Refused: []error{errors.New("a"), errors.New("b")}, Unusable: true}.findings(), []string{"error options", "error options"}, []string{"nothing that depends"}},
		"a variable that is no option":  {Options{Unknown: []string{"DELEGATED_IPAM_OWNER"}}.findings(), []string{"warning options"}, []string{"DELEGATED_IPAM_OWNER"}},
		"one that the sidecar does not": {Options{Differing: []Difference{{"owners", "a", "config-dir", "b", "default"}}}.findings(), []string{"warning options"}, []string{"--owners", `"a" here (config-dir)`, `"b" (default)`, "restart"}},
	})
}

func TestDoctorSaysWhetherItSeesWhatTheSidecarSees(t *testing.T) {
	peer := unixsock.Peer{PID: 4711, UID: 1000}
	judge(t, map[string]judged{
		"no sidecar answers":            {Place{UID: 1000}.findings(), []string{"ok place"}, []string{"could not be told"}},
		"the same user and files":       {Place{Known: true, Peer: peer, UID: 1000}.findings(), []string{"ok place"}, []string{"4711", "1000"}},
		"another user":                  {Place{Known: true, Peer: peer, UID: 0}.findings(), []string{"warning place"}, []string{"user 1000", "user 0", "run doctor as user 1000"}},
		"other files":                   {Place{Known: true, Peer: peer, UID: 1000, OtherFiles: true}.findings(), []string{"warning place"}, []string{"another container"}},
		"a process that cannot be seen": {Place{Known: true, Peer: unixsock.Peer{UID: 1000}, UID: 1000}.findings(), []string{"warning place"}, []string{"another container"}},
	})
}

func TestAMachineWithoutAnIDIsAWarning(t *testing.T) {
	judge(t, map[string]judged{
		"it has one":  {Node{MachineID: "x"}.machine(), []string{"ok machine-id"}, nil},
		"it has none": {Node{}.machine(), []string{"warning machine-id"}, []string{"/etc/machine-id"}},
	})
}

func TestTheSocketIsForThoseForWhomItShouldBe(t *testing.T) {
	socket := func(change func(*Socket)) []Finding {
		s := Socket{
			Options: unixsock.Options{Path: "/run/ipam.sock", Mode: 0o660}, Callers: unixsock.Callers{UIDs: []int{7}, GIDs: []int{8}},
			There: true, Mode: fs.ModeSocket | 0o660, GID: 9,
		}
		change(&s)
		return s.findings()
	}
	judge(t, map[string]judged{
		"as it should be": {socket(func(*Socket) {}), []string{"ok socket"}, []string{"0660", "group 9", "user 7", "group 8", "root"}},
		"not there yet":   {socket(func(s *Socket) { s.There, s.Mode = false, 0 }), []string{"ok socket"}, []string{"will have mode 0660"}},
		"everybody may open it": {
			socket(func(s *Socket) { s.Mode = fs.ModeSocket | 0o666 }), []string{"warning socket"}, []string{"0666", "--socket-mode=0660"},
		},
		"everybody will": {
			socket(func(s *Socket) { s.There, s.Options.Mode = false, 0o777 }), []string{"warning socket"}, []string{"0777"},
		},
		"a file in its place": {socket(func(s *Socket) { s.Mode = 0o660 }), []string{"error socket"}, []string{"no socket"}},
		"a group that is not known": {
			socket(func(s *Socket) { s.Invalid = errors.New("group nix") }), []string{"error socket"}, []string{"group nix", "--socket-group"},
		},
		"a folder that everybody may write to": {
			socket(func(s *Socket) { s.Exposed = errors.New("exposed") }), []string{"warning socket"}, []string{"exposed"},
		},
		"such a folder that only the pod sees": {
			socket(func(s *Socket) {
				s.Exposed, s.Folder.Root = errors.New("exposed"), "/var/lib/kubelet/pods/x/volumes/kubernetes.io~empty-dir/run"
			}), []string{"ok socket"}, nil,
		},
	})
}

func TestWhatTheSidecarSaysOfItsAttachments(t *testing.T) {
	noon := strfmt.DateTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	later := strfmt.DateTime(time.Time(noon).Add(time.Hour))
	if got, want := confirmed([]*models.Attachment{{State: "held", Verified: &later}, {State: "held", Verified: &noon}, {State: "held", Verified: &later}}),
		"each of 3 held ones was confirmed by its plugin, none before 2026-03-01T12:00:00Z"; got != want {
		t.Errorf("of three it says %q; want %q", got, want)
	}
	say := func(a models.Attachment, quarantined ...*models.QuarantinedRecord) []Finding {
		return Sight{Status: &models.DelegatedIPAMStatus{Quarantined: quarantined}, After: []*models.Attachment{&a}}.attachments()
	}
	judge(t, map[string]judged{
		"held":                  {say(models.Attachment{State: "held"}), []string{"ok attachments"}, []string{"none of 1", "1 of 1 held ones no plugin has confirmed"}},
		"held and confirmed":    {say(models.Attachment{State: "held", Verified: &noon}), []string{"ok attachments"}, []string{"none before 2026-03-01T12:00:00Z"}},
		"cooldown":              {say(models.Attachment{State: "cooldown"}), []string{"ok attachments"}, []string{"none is held"}},
		"held, after a failure": {say(models.Attachment{State: "held", LastError: "once"}), []string{"ok attachments"}, nil},
		"lost":                  {say(models.Attachment{State: "held", Lost: true, Owner: "router"}), []string{"error attachments"}, []string{`"router"`, "allocate"}},
		"a DEL that fails":      {say(models.Attachment{State: "releasing", LastError: "no daemon", Owner: "x"}), []string{"warning attachments"}, []string{"no daemon", `"x"`}},
		"an ADD that failed":    {say(models.Attachment{State: "adding", LastError: "full"}), []string{"warning attachments"}, []string{"full"}},
		"a DEL that goes on":    {say(models.Attachment{State: "releasing"}), []string{"ok attachments"}, nil},
		"a record in quarantine": {
			say(models.Attachment{}, &models.QuarantinedRecord{File: "quarantine/x", Reason: "cut off"}), []string{"warning attachments"}, []string{"quarantine/x", "cut off"},
		},
	})
	if got := (Sight{Status: &models.DelegatedIPAMStatus{}, ListErr: errors.New("403")}).attachments(); len(got) != 0 {
		t.Errorf("without a list it says %+v; want nothing", got)
	}
}

func TestThePoolsOfAStartHaveTheFactsOfTheirProfile(t *testing.T) {
	n := Node{Pools: []Pool{pool(nil), {}}}
	n.Pools[1].ConfErr = errors.New("none")
	got := Sight{Node: &n}.Pools()
	if len(got) != 1 || got[0].Network != "pods" || got[0].Plugin != "host-local" || fact(got[0], "stateDirKey") != "dataDir" {
		t.Errorf("got %+v; want the one pool with its facts", got)
	}
	if got := (Sight{}).Pools(); got != nil {
		t.Errorf("without anything there are %+v", got)
	}
}

func TestWhatANodeShowsIsShownInOrderAndWithTheLeasesOfThePods(t *testing.T) {
	n := Node{MachineID: "x", StateDir: StateDir{Folder: disk(), Real: "/data"}, Pools: []Pool{pool(nil)}, Err: errors.New("--plugin-env")}
	n.Pools[0].State = PluginState{Folder: disk()}
	found := n.findings([]Store{{Pool: "default", Leases: []hostlocal.Lease{leased("10.0.0.1", "pod")}}})
	var got []string
	for _, f := range found {
		got = append(got, string(f.Check))
	}
	want := "place machine-id socket state-dir room plugin conflist plugin versions gc guard netns plugin-state room"
	if strings.Join(got, " ") != want {
		t.Errorf("found %v; want %s", got, want)
	}
	if seen := found[len(found)-2].Seen; !strings.Contains(seen, "1 addresses of others") {
		t.Errorf("the plugin's folder is %q; want the lease of the pod to count", seen)
	}
}
