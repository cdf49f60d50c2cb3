package record

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

func TestUnmarshalVersion1(t *testing.T) {
	const addOutlives = `"type":"remote","addOutlivesSeconds":60`
	until := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	queued := profile.Profile{Type: "remote", AddOutlivesSeconds: 60, DelOutlivesSeconds: 60, Del: profile.DelQueued, Store: profile.StoreRemote, Unique: true}
	released := queued
	released.Del = profile.DelReleased
	hostLocal := profile.Profile{Type: "host-local", Del: profile.DelReleased, Store: profile.StoreNode, Unique: true}
	current := profile.Profile{Type: "remote", AddOutlivesSeconds: 60, Del: profile.DelUnproved, Store: profile.StoreNode, Lookup: profile.LookupHostLocal}
	for name, c := range map[string]struct {
		keys, contextKeys, profile string
		wantUntil                  time.Time
		want                       profile.Profile
	}{
		"queued DEL by its first name":    {"", "", addOutlives + `,"lateDel":true`, time.Time{}, queued},
		"released DEL by its first name":  {"", "", addOutlives + `,"lateDel":false`, time.Time{}, released},
		"store on the node":               {"", "", `"type":"host-local"`, time.Time{}, hostLocal},
		"every fact":                      {"", "", addOutlives + `,"delOutlivesSeconds":0,"del":"unproved","store":"node","lookup":"host-local-leases","unique":false`, time.Time{}, current},
		"deadline of an ADD":              {"", `"settlesAt":"2026-11-21T10:00:00Z",`, addOutlives, until, released},
		"deadline of an ADD, at the end":  {`"settlesAt":"2026-11-21T10:00:00Z",`, "", addOutlives, until, released},
		"deadlines of both: the record's": {`"settlesAt":"2026-11-21T10:00:00Z",`, `"settlesAt":"2026-11-21T09:00:00Z",`, addOutlives, until, released},
	} {
		t.Run(name, func(t *testing.T) {
			raw := fmt.Sprintf(`{"containerID":"a",%s"contexts":[{"containerID":"a-g1",%s"profile":{%s}}]}`, c.keys, c.contextKeys, c.profile)
			r, err := UnmarshalVersion1([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Invocations) != 1 || r.ContainerID != "a" || r.Invocations[0].ContainerID != "a-g1" {
				t.Fatalf("got %+v; want one invocation with its container ID", r)
			}
			if inv := r.Invocations[0]; !inv.AddActsUntil.Equal(c.wantUntil) || fmt.Sprint(inv.Profile) != fmt.Sprint(c.want) {
				t.Errorf("an ADD may act until %v, profile %+v; want %v, %+v", inv.AddActsUntil, inv.Profile, c.wantUntil, c.want)
			}
		})
	}
}

func TestUnmarshalVersion1Keys(t *testing.T) {
	for state, want := range map[string]State{"adding": Adding, "held": Held, "cooling": Cooldown, "releasing": Releasing, "spent": Tombstone, "tombstone": Tombstone, "lent": "lent"} {
		r, err := UnmarshalVersion1([]byte(`{"state":"` + state + `","invocations":[{"containerID":"b"}]}`))
		if err != nil || r.State != want || len(r.Invocations) != 1 || r.Invocations[0].ContainerID != "b" {
			t.Errorf("%s: got %+v, %v; want state %s and the invocation", state, r, err, want)
		}
	}
	if _, err := UnmarshalVersion1([]byte(`{"contexts":1}`)); err == nil || !strings.Contains(err.Error(), "contexts") {
		t.Errorf("error %v; want one that names the key", err)
	}
}
