package cli

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// read is a file in testdata.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestListPrintsATableByPoolAndOwner(t *testing.T) {
	s := startSidecar(t, map[string][]answer{"GET /v1/ipam": {jsonAnswer(200, read(t, "attachments.json"))}})
	o := s.program().runHere(t, "list")
	o.wants(t, option.Done, o.stdout)
	golden(t, "list.txt", o.stdout)
}

func TestAnEmptyListIsATableWithoutLines(t *testing.T) {
	s := startSidecar(t, map[string][]answer{"GET /v1/ipam": {jsonAnswer(200, "[]")}})
	s.program().runHere(t, "list").wants(t, option.Done, "OWNER   POOL   STATE   ADDRESSES   CLAIMS   AGE   CONTAINER-ID   NOTE\n")
}

func TestListAsJSONIsWhatTheSidecarAnswered(t *testing.T) {
	body := read(t, "attachments.json")
	s := startSidecar(t, map[string][]answer{"GET /v1/ipam": {jsonAnswer(200, body)}})
	o := s.program().runHere(t, "list", "-o", "json")
	o.wants(t, option.Done, o.stdout)
	if got, want := canonical(t, o.stdout), canonical(t, body); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// canonical is JSON without spaces and with sorted keys.
func canonical(t *testing.T, text string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestALengthOfTimeIsShownInAtMostTwoUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Hour:                             "0s",
		999 * time.Millisecond:                 "0s",
		1500 * time.Millisecond:                "1s",
		59*time.Second + 999*time.Millisecond:  "59s",
		time.Minute:                            "1m",
		time.Minute + time.Second:              "1m1s",
		time.Hour + 59*time.Second:             "1h",
		23*time.Hour + 59*time.Minute:          "23h59m",
		24 * time.Hour:                         "1d",
		25*time.Hour + 30*time.Minute:          "1d1h",
		400*24*time.Hour + 23*time.Hour:        "400d23h",
		10*time.Minute + 30*time.Second + 1e6:  "10m30s",
		time.Minute - time.Nanosecond:          "59s",
		time.Hour - time.Nanosecond:            "59m59s",
		24*time.Hour - time.Nanosecond:         "23h59m",
		time.Second - time.Nanosecond:          "0s",
		2*time.Hour + 5*time.Minute:            "2h5m",
		48*time.Hour + 59*time.Minute + 59*1e9: "2d",
	} {
		if got := length(d); got != want {
			t.Errorf("%s is shown as %s; want %s", d, got, want)
		}
	}
}

func TestAnOwnerCannotDriveTheTerminalOfWhoLists(t *testing.T) {
	s := startSidecar(t, map[string][]answer{"GET /v1/ipam": {jsonAnswer(200, `[{"owner":"left\u202etfel\u2028x","pool":"default","last-error":"a\u001b[31m\tb"}]`)}})
	o := s.program().runHere(t, "list")
	o.wants(t, option.Done, o.stdout)
	if want := `left\u202etfel\u2028x   default`; !strings.Contains(o.stdout, want) || !strings.Contains(o.stdout, `a\x1b[31m b`) {
		t.Errorf("it printed %q; want %q, and no escape sequence", o.stdout, want)
	}
}
