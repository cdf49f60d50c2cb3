package sidecar

import (
	"github.com/delegated-ipam/delegated-ipam/internal/defaults"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// The journal has the default pool under the name defaults.Pool, for any --ipam-default-ip-pool: a
// start with another name finds the attachments, and a version without the option, too.

// unnamedDefaultPool is a journal that gets the records of the default pool without its name.
type unnamedDefaultPool struct {
	engine.Journal
	// name is --ipam-default-ip-pool.
	name string
}

// Write implements attachment.Journal.
func (j unnamedDefaultPool) Write(r record.Record) error {
	if r.Pool == j.name {
		r.Pool = defaults.Pool
	}
	return j.Journal.Write(r)
}

// nameDefaultPool gives loaded records of the default pool its name.
func nameDefaultPool(loaded journal.Loaded, name string) {
	rename := func(pool *string) {
		if *pool == defaults.Pool {
			*pool = name
		}
	}
	for i := range loaded.Records {
		rename(&loaded.Records[i].Pool)
	}
	for i := range loaded.FutureVersions {
		rename(&loaded.FutureVersions[i].Pool)
	}
}
