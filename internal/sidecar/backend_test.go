package sidecar

import (
	"errors"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/metrics"
)

// disk is a journal whose methods return an error.
type disk struct{ err error }

func (d disk) Write(record.Record) error { return d.err }
func (d disk) Remove(string) error       { return d.err }
func (d disk) RemoveSoon(string) error   { return d.err }
func (d disk) Available() error          { return d.err }

func TestJournalFailures(t *testing.T) {
	full, failures := errors.New("disk full"), 0
	j := engineJournal{disk{full}, metrics.New(metrics.Options{}), func() { failures++ }}
	for name, err := range map[string]error{"Write": j.Write(record.Record{}), "Remove": j.Remove("id"), "RemoveSoon": j.RemoveSoon("id"), "Available": j.Available()} {
		if !errors.Is(err, full) {
			t.Errorf("%s returned %v; want %v", name, err, full)
		}
	}
	j.Journal = disk{}
	if err := errors.Join(j.Write(record.Record{}), j.Remove("id"), j.RemoveSoon("id"), j.Available()); err != nil || failures != 4 {
		t.Errorf("got %v, and %d failures; want none, and 4 before", err, failures)
	}
}
