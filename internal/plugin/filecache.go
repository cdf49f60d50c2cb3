package plugin

import (
	"os"
	"sync"
)

// fileCache keeps one value for each file, by path, as long as the file is unchanged. It is safe
// for concurrent use.
type fileCache[V any] struct {
	mu      sync.Mutex
	entries map[string]fileEntry[V]
}

// fileEntry is the value of a file in one state.
type fileEntry[V any] struct {
	info  os.FileInfo
	value V
}

// isFor reports whether the entry is for a file in the same state: the same inode, size and
// modification time.
func (e fileEntry[V]) isFor(info os.FileInfo) bool {
	return os.SameFile(e.info, info) && e.info.Size() == info.Size() && e.info.ModTime().Equal(info.ModTime())
}

// get returns the value of a file, and whether there is one.
func (c *fileCache[V]) get(path string, info os.FileInfo) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[path]
	if !ok || !e.isFor(info) {
		return value, false
	}
	return e.value, true
}

func (c *fileCache[V]) put(path string, info os.FileInfo, value V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = map[string]fileEntry[V]{}
	}
	c.entries[path] = fileEntry[V]{info, value}
}
