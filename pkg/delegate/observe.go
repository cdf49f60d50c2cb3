package delegate

import (
	"errors"
	"time"

	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/call"
)

// Observer is told of plugin calls. It is called by many at once and may not block.
type Observer interface {
	// Called tells of a call that has ended: its verb, the plugin's type, what its
	// error says (empty for none), and how long it took, waiting for a plugin of an
	// earlier life included.
	Called(verb, plugin string, outcome call.Outcome, took time.Duration)
	// Running tells that a plugin process is about to start (1) or has ended (-1).
	Running(change int)
}

// unobserved is the observer where none is wanted.
type unobserved struct{}

func (unobserved) Called(string, string, call.Outcome, time.Duration) {}
func (unobserved) Running(int)                                        {}

// called tells the observer that the call has ended, and returns its error.
func (x *execution) called(err error) error {
	var outcome call.Outcome
	var e *call.Error
	if errors.As(err, &e) {
		outcome = e.Outcome
	}
	x.runner.opts.Observer.Called(x.verb, x.plugin, outcome, time.Since(x.began))
	return err
}
