package logging

import (
	"context"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/sirupsen/logrus/hooks/test"
)

func TestNew(t *testing.T) {
	for name, tt := range map[string]struct {
		asJSON bool
		want   string
	}{
		"text": {false, "level=warning msg=seen"},
		"JSON": {true, `"level":"warning","msg":"seen"`},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			log, err := New(&out, "warning", tt.asJSON)
			if err != nil {
				t.Fatal(err)
			}
			log.Info("hidden")
			log.Warn("seen")
			if got := out.String(); !strings.Contains(got, tt.want) || strings.Contains(got, "hidden") {
				t.Errorf("logged %q; want %q alone", got, tt.want)
			}
		})
	}
	if _, err := New(nil, "loud", false); err == nil {
		t.Error("no error for an unknown level")
	}
}

func TestWriter(t *testing.T) {
	var out strings.Builder
	log := logrus.New()
	log.SetOutput(&out)
	line := " a line \n"
	if n, err := Writer(log).Write([]byte(line)); n != len(line) || err != nil {
		t.Errorf("wrote %d bytes, %v; want %d", n, err, len(line))
	}
	if got := out.String(); !strings.Contains(got, `level=warning msg="a line"`) {
		t.Errorf("logged %q; want one warning", got)
	}
}

func TestForRequest(t *testing.T) {
	log, hook := test.NewNullLogger()
	ctx := WithRequestID(context.Background(), "abc")
	ForRequest(context.WithoutCancel(ctx), log).Info("of a request")
	if got := hook.LastEntry().Data[FieldRequestID]; got != "abc" {
		t.Errorf("the line of a request has the ID %v; want abc", got)
	}
	ForRequest(context.Background(), log).Info("of background work")
	if got, ok := hook.LastEntry().Data[FieldRequestID]; ok {
		t.Errorf("the line of background work has the ID %v; want none", got)
	}
}
