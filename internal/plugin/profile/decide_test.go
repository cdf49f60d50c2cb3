package profile

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/scenario"
)

// load returns the embedded profiles.
func load(t *testing.T) Set {
	t.Helper()
	set, err := Load()
	check.Must(t, err)
	return set
}

// TestDecisions runs the scenarios of testdata/decisions.txt. A line asks for a decision, with its answer or "error" and a
// text.
func TestDecisions(t *testing.T) {
	set := load(t)
	scenario.Each(t, "testdata/decisions.txt", func(t *testing.T, lines []string) {
		var p Profile
		for _, line := range lines {
			question, want, _ := strings.Cut(line, "->")
			name, args, _ := strings.Cut(strings.TrimSpace(question), " ")
			switch name {
			case "type":
				p = set.For(args)
			case "profile":
				p = Profile{}
				check.Must(t, json.Unmarshal([]byte(args), &p))
			default:
				check.Equal(t, line, decide(t, p, name, args, strings.TrimSpace(want)), strings.TrimSpace(want))
			}
		}
	})
}

// decide returns the answer to a question. An error that is wanted is shown as it is wanted.
func decide(t *testing.T, p Profile, name, args, want string) string {
	t.Helper()
	shown := func(err error) string {
		switch text, wanted := strings.CutPrefix(want, "error "); {
		case err == nil:
			return ""
		case wanted && strings.Contains(err.Error(), text):
			return want
		}
		return err.Error()
	}
	switch name {
	case "conclusions":
		return fmt.Sprint(p.DelBeforeAdd(), p.SingleUseIDs(), p.OnNode(), p.HasStatus())
	case "state-dir":
		dir, key := p.StateDir([]byte(args))
		return strings.TrimSpace(dir + " " + key)
	case "pod":
		pod, ok := p.Pod(args, "id")
		if !ok {
			return "none"
		}
		return pod.Namespace + " " + pod.Name
	case "required":
		var all []string
		for _, r := range p.Required([]byte(args)) {
			all = append(all, string(r.Kind)+" "+strings.Join(r.Paths, ","))
		}
		return strings.Join(all, " ")
	case "network-name":
		datastore, network, _ := strings.Cut(args, " ")
		object := map[string]json.RawMessage{"datastore_type": json.RawMessage(`"` + datastore + `"`)}
		return shown(p.CheckNetworkName(network, object))
	case "time-limit":
		limit, err := time.ParseDuration(args)
		check.Must(t, err)
		return shown(p.CheckTimeout(limit))
	case "reclaim":
		return shown(p.CheckReclaim([]byte(args)))
	case "not-separate":
		return p.NotSeparate()
	case "not-held":
		return fmt.Sprint(p.IsNotHeld(100, args, ""))
	case "danger":
		return p.Danger()
	}
	t.Fatalf("unknown question %q", name)
	return ""
}
