package profiletry

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delegated-ipam/delegated-ipam/internal/containerid"
	"github.com/delegated-ipam/delegated-ipam/internal/plugin/call"
)

// NewIDPrefix returns a prefix for the container IDs of one trial, with 48 random bits. An ID with it
// is a DNS label and matches the pattern of the CNI spec (section 2, CNI_CONTAINERID).
func NewIDPrefix() string {
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	return containerid.TrialPrefix + hex.EncodeToString(random[:])
}

// scratch is a container ID of the trial.
type scratch struct {
	// call is how its verbs are called. PrevResult is the result of its last ADD.
	call call.Call
	// dirty reports that it may hold an address: an ADD or a CHECK came after the last DEL that
	// succeeded.
	dirty bool
	// added reports that it is dirty by an ADD.
	added bool
	// delErr is the error of the last DEL; nil if it succeeded.
	delErr error
	// late reports that an ADD had an unknown outcome, and may still allocate.
	late bool
}

// newScratch returns a container ID that was never used.
func (t *trial) newScratch(ctx context.Context, name string) (*scratch, error) {
	if ctx.Err() != nil {
		return nil, t.stop("interrupted")
	}
	id := t.IDPrefix + "-" + name
	inv, err := t.Plugin.NewInvocation(ctx, t.Network, id, id)
	if err != nil {
		return nil, t.stop("%w", err)
	}
	s := &scratch{call: call.Call{Owner: id, Invocation: inv}}
	t.scratches = append(t.scratches, s)
	return s, nil
}

// Leftover is a container ID that may still hold an address, or may hold one later.
type Leftover struct {
	// ContainerID is the ID.
	ContainerID string `json:"container-id"`
	// Reason is why it could not be released.
	Reason string `json:"reason"`
	// AfterSeconds is how many seconds after the end of the trial the command must be run at the
	// earliest.
	AfterSeconds int `json:"after-seconds"`
	// Command is the shell command that releases it: the exact DEL.
	Command string `json:"command"`
}

// findEarlier reports the container IDs of earlier trials that were killed. They are not released:
// another trial may be running. A store that cannot be read shows none.
func (t *trial) findEarlier(inv call.Invocation) {
	held, err := t.Plugin.Held(inv, containerid.TrialPrefix)
	if err != nil {
		return
	}
	for _, earlier := range held {
		t.leave(&scratch{call: call.Call{Invocation: earlier}}, 0, "left by an earlier trial that was killed, unless that is still running")
	}
}

// maxDels is how often a failed DEL is run at the end.
const maxDels = 2

// releaseAll runs DEL for each container ID that may hold an address, the last one first, and
// reports those that may still hold one. After an ADD with an unknown outcome there is always a
// last DEL.
func (t *trial) releaseAll(ctx context.Context) {
	for _, s := range slices.Backward(t.scratches) {
		if s.late {
			s.dirty = true
		}
		for range maxDels {
			if s.dirty {
				t.run(ctx, s, call.VerbDel, "release the allocations of the trial")
			}
		}
		switch {
		case s.dirty:
			t.leave(s, 0, fmt.Sprintf("its DEL failed: %v", s.delErr))
		case s.late && t.addOutlives() > 0:
			t.leave(s, t.addOutlives(), fmt.Sprintf("the outcome of an ADD is unknown, and by the profile %q it may allocate for %d s: a last DEL is needed after that",
				t.Profile.Type, t.addOutlives()))
		}
	}
}

// addOutlives returns how many seconds an ADD with an unknown outcome may still allocate.
func (t *trial) addOutlives() int {
	var ended time.Time
	return int(t.Profile.ActsUntil(ended).Sub(ended).Seconds())
}

func (t *trial) leave(s *scratch, after int, reason string) {
	t.report.Leftovers = append(t.report.Leftovers, Leftover{
		ContainerID: s.call.ContainerID, Reason: reason, AfterSeconds: after, Command: t.Plugin.CommandLine(call.VerbDel, s.call),
	})
}

// leftoverErr returns an error if something could not be released.
func (t *trial) leftoverErr() error {
	if len(t.report.Leftovers) == 0 {
		return nil
	}
	ids := make([]string, len(t.report.Leftovers))
	for i, l := range t.report.Leftovers {
		ids[i] = l.ContainerID
	}
	return errors.New("the trial may leave addresses behind under " + strings.Join(ids, ", ") + "; run the commands that it prints for them")
}
