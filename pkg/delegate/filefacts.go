package delegate

import (
	"os"
	"sync"
)

// fileFacts keeps what was found out about files, by path, each as long as its file
// stays the same. It is safe for concurrent use.
type fileFacts[F any] struct {
	mu    sync.Mutex
	known map[string]fileFact[F]
}

// fileFact is a fact of one state of a file. Another file in its place, or other
// contents, is another state.
type fileFact[F any] struct {
	file os.FileInfo
	fact F
}

func (f fileFact[F]) of(info os.FileInfo) bool {
	return os.SameFile(f.file, info) && f.file.Size() == info.Size() && f.file.ModTime().Equal(info.ModTime())
}

func (all *fileFacts[F]) get(path string, info os.FileInfo) (fact F, ok bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	f, ok := all.known[path]
	if !ok || !f.of(info) {
		return fact, false
	}
	return f.fact, true
}

func (all *fileFacts[F]) put(path string, info os.FileInfo, fact F) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.known == nil {
		all.known = map[string]fileFact[F]{}
	}
	all.known[path] = fileFact[F]{info, fact}
}
