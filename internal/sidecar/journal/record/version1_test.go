package record

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/plugin/profile"
)

func TestUnmarshalVersion1(t *testing.T) {
	until := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		recordKeys, contextKeys string
		want                    time.Time
	}{
		"no deadline":                 {},
		"deadline of an invocation":   {"", `"settlesAt":"2026-11-21T10:00:00Z",`, until},
		"deadline of the record":      {`"settlesAt":"2026-11-21T10:00:00Z",`, "", until},
		"both: that of the record":    {`"settlesAt":"2026-11-21T10:00:00Z",`, `"settlesAt":"2026-11-21T09:00:00Z",`, until},
		"zero deadline of the record": {`"settlesAt":"0001-01-01T00:00:00Z",`, `"settlesAt":"2026-11-21T10:00:00Z",`, until},
	} {
		t.Run(name, func(t *testing.T) {
			raw := fmt.Sprintf(`{"containerID":"a",%s"contexts":[{"containerID":"a-g1",%s"profile":{"lateDel":true}}]}`, c.recordKeys, c.contextKeys)
			r, err := UnmarshalVersion1([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Invocations) != 1 || r.ContainerID != "a" || r.Invocations[0].ContainerID != "a-g1" {
				t.Fatalf("got %+v; want one invocation with its container ID", r)
			}
			if inv := r.Invocations[0]; !inv.AddActsUntil.Equal(c.want) || inv.Profile.Del != profile.DelQueued {
				t.Errorf("an ADD may act until %v, DEL is %s; want %v, %s", inv.AddActsUntil, inv.Profile.Del, c.want, profile.DelQueued)
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
