package logging

import (
	"context"
	"testing"

	"github.com/sirupsen/logrus/hooks/test"
)

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
