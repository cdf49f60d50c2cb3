package check

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCollectDir(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	t.Run("missing", func(t *testing.T) {
		if f := CollectDir(filepath.Join(dir, "a/b")); f.Err != nil || f.At != dir || f.Free == 0 || f.NotWritable != nil {
			t.Errorf("got %+v; want the description of %s", f, dir)
		}
	})
	for _, path := range []string{"file", "file/x"} {
		t.Run(path, func(t *testing.T) {
			if f := CollectDir(filepath.Join(dir, path)); f.Err == nil {
				t.Errorf("got %+v; want an error", f)
			}
		})
	}
}
