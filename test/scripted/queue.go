package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// queue has the DELs that were accepted while the plugin's daemon was down: a file for each, with
// the holder.
type queue struct {
	dir string
	// down reports that the daemon is down.
	down bool
}

func (c conf) queue() queue {
	return queue{dir: filepath.Join(c.scriptDir(), "queue"), down: c.exists("daemon-down")}
}

// add queues a DEL. The directory must exist, as azure-ipam's /var/run/azure-vnet/deleteIDs.
func (q queue) add(h holder) error {
	f, err := os.CreateTemp(q.dir, "del-")
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(h.key)
	return err
}

// replay executes the queued DELs, even if the address has another holder now.
func (q queue) replay(s *store) error {
	entries, err := os.ReadDir(q.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(q.dir, e.Name())
		key, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := errors.Join(s.free(holder{key: string(key)}), os.Remove(path)); err != nil {
			return err
		}
	}
	return nil
}
