package sidecar

import (
	"context"
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/engine/protocol"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/journal/record"
)

// maxSweepInterval bounds the time between two sweeps.
const maxSweepInterval = time.Minute

// namespaces releases containers whose network namespace has been missing for a grace time
// (--missing-netns-release-delay;
// docs/design/pods.md, What releases an address).
type namespaces struct {
	engine interface {
		All() iter.Seq[engine.Attachment]
		ReleaseContainer(ctx context.Context, k protocol.Key, before time.Time) error
	}
	grace time.Duration
	log   logrus.FieldLogger
	// own is CNI_NETNS of the calls for owners without a namespace.
	own string
	// loaded are the containers that were recorded at the start.
	loaded map[protocol.Key]bool
	// missing has since when each container's namespace is missing.
	missing map[protocol.Key]time.Time
}

func loadedContainers(records []record.Record) map[protocol.Key]bool {
	all := map[protocol.Key]bool{}
	for _, r := range records {
		if protocol.OfContainer(r.Owner) {
			all[protocol.Key{Pool: r.Pool, Owner: r.Owner}] = true
		}
	}
	return all
}

// run sweeps until ctx ends.
func (n *namespaces) run(ctx context.Context) {
	if n.grace == 0 {
		return
	}
	ticks := time.NewTicker(min(n.grace, maxSweepInterval))
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks.C:
			n.sweep(ctx, now)
		}
	}
}

// sweep releases what is due at a moment. A directory counts only if it has the namespace of a container
// that was added since the start: a mount of the host's directory that was covered by a later mount
// would show none of them, and every pod of the node would lose its address.
func (n *namespaces) sweep(ctx context.Context, now time.Time) {
	proven, missing := map[string]bool{}, map[protocol.Key]string{}
	for a := range n.engine.All() {
		k, path := protocol.Key{Pool: a.Pool, Owner: a.Owner}, n.netNS(a)
		if path == "" {
			continue
		}
		_, err := os.Lstat(path)
		switch {
		case err == nil && !n.loaded[k]:
			proven[filepath.Dir(path)] = true
		case errors.Is(err, fs.ErrNotExist):
			missing[k] = path
		}
	}
	since := map[protocol.Key]time.Time{}
	for k, path := range missing {
		if !proven[filepath.Dir(path)] {
			continue
		}
		since[k] = now
		if first, ok := n.missing[k]; ok {
			since[k] = first
		}
		if now.Sub(since[k]) < n.grace {
			continue
		}
		log := n.log.WithFields(logrus.Fields{"owner": k.Owner, "poolName": k.Pool, "netns": path})
		if err := n.engine.ReleaseContainer(ctx, k, since[k]); err != nil {
			log.WithError(err).Warn("Failed to release a container without network namespace; it is repeated")
			continue
		}
		log.Info("Released a container whose network namespace is missing")
	}
	n.missing = since
}

// netNS returns the network namespace that the runtime named for a held container interface, or one that is
// added again; empty if it is not known.
func (n *namespaces) netNS(a engine.Attachment) string {
	if a.State != record.Held && a.State != record.Adding {
		return ""
	}
	return netNS(a.Record, n.own)
}

// netNS returns the network namespace of a container interface; empty for own, the one of other calls.
func netNS(r record.Record, own string) string {
	if !protocol.OfContainer(r.Owner) || len(r.Invocations) == 0 {
		return ""
	}
	if path := r.Invocations[len(r.Invocations)-1].NetNS; path != own {
		return path
	}
	return ""
}

// namespaceExists returns a function that reports whether the network namespace of a container exists. A
// file that is left of one, or a directory that is not the runtime's, has no namespace.
func namespaceExists(own string) func(record.Record) bool {
	return func(r record.Record) bool {
		path := netNS(r, own)
		var s unix.Statfs_t
		return path != "" && unix.Statfs(path, &s) == nil && s.Type == unix.NSFS_MAGIC
	}
}
