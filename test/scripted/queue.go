package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// queue has the DELs that were accepted while the plugin's daemon was down: a file for each, with
// the holder.
type queue struct{ dir, down string }

func (c conf) queue() queue {
	return queue{dir: filepath.Join(c.scriptDir(), "queue"), down: filepath.Join(c.scriptDir(), "daemon-down")}
}

// isDown reports whether the daemon is down.
func (q queue) isDown() bool {
	_, err := os.Stat(q.down)
	return err == nil
}

// add queues a DEL.
func (q queue) add(h holder) error {
	if err := os.MkdirAll(q.dir, 0o755); err != nil {
		return err
	}
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
