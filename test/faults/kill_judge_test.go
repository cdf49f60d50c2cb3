package faults

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
	"github.com/delegated-ipam/delegated-ipam/test/oracle"
)

// settle waits until recovery is over and every invariant holds, or the sidecar
// is dead. That it never comes to be so is the failure that the campaign looks for.
func (s *scene) settle() {
	s.t.Helper()
	s.until("every invariant holds", func() error {
		if !s.sidecar.Running() {
			return nil
		}
		list, err := s.list()
		if !s.sidecar.Running() {
			return nil
		}
		if err != nil {
			return err
		}
		return s.judge(list)
	})
}

func (s *scene) list() ([]harness.Attachment, error) {
	a, err := s.sidecar.Try(http.MethodGet, "/v1/ipam")
	if err != nil {
		return nil, err
	}
	var list []harness.Attachment
	return list, json.Unmarshal(a.Body, &list)
}

// judge returns what is not right, or not yet.
func (s *scene) judge(list []harness.Attachment) error {
	s.t.Helper()
	now := s.seen(list)
	var errs []error
	for _, v := range s.history.Judge(now) {
		errs = append(errs, v)
	}
	for _, a := range list {
		if s.unsettled(a, now) {
			errs = append(errs, fmt.Errorf("%s is still %s: %s", a.ContainerID, a.State, a.LastError))
		}
	}
	return errors.Join(errs...)
}

// unsettled tells whether an attachment is still on its way. One that a killed
// plugin bars from its address waits for its owner.
func (s *scene) unsettled(a harness.Attachment, now oracle.Final) bool {
	barred := slices.ContainsFunc(harness.Held([]harness.Attachment{a}), func(h oracle.Held) bool {
		return slices.Contains(now.Unborn, h.IP)
	})
	onItsWay := a.State == "releasing" || a.State == "adding" && !barred
	return onItsWay || s.endsEmpty && !s.unanswered
}

// seen is what the plugin and the sidecar say now.
func (s *scene) seen(list []harness.Attachment) oracle.Final {
	s.t.Helper()
	stored, unborn := s.stored()
	return oracle.Final{Stored: stored, Listed: harness.Held(list), Unborn: unborn}
}

// stored is what the plugin's store has now.
func (s *scene) stored() (leases []oracle.Lease, unborn []netip.Addr) {
	s.t.Helper()
	leases, files, err := oracle.HostLocalKilled(s.node.StoreDir)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, file := range files {
		unborn = append(unborn, netip.MustParseAddr(filepath.Base(file)))
	}
	return leases, unborn
}

// end stops the sidecar: what was right must still be so when nothing runs any
// more, and the journal must be what the sidecar has said last. It returns what is
// seen then.
func (s *scene) end() oracle.Final {
	s.t.Helper()
	list := s.sidecar.List(s.t)
	s.sidecar.Stop(s.t)
	s.node.WantJournal(s.t, list)
	if err := s.judge(list); err != nil {
		s.t.Errorf("after the end: %v", err)
	}
	return s.seen(list)
}
