package journal

import (
	"os"
	"path/filepath"
	"testing"
)

func hostWith(t *testing.T, files map[string]string) Host {
	t.Helper()
	h := Host{Root: t.TempDir()}
	for name, content := range files {
		path := filepath.Join(h.Root, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(content), 0o600))
	}
	return h
}

func TestMachineID(t *testing.T) {
	const machineID, productUUID = "etc/machine-id", "sys/class/dmi/id/product_uuid"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"machine ID":       {map[string]string{machineID: "abc\n", productUUID: "DEF\n"}, "abc"},
		"product UUID":     {map[string]string{productUUID: "DEF\n"}, "def"},
		"empty machine ID": {map[string]string{machineID: "\n", productUUID: "DEF"}, "def"},
		"uninitialized":    {map[string]string{machineID: "uninitialized\n"}, ""},
		"neither":          {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hostWith(t, c.files).MachineID(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestBootID(t *testing.T) {
	const file = "proc/sys/kernel/random/boot_id"
	if got, err := hostWith(t, map[string]string{file: "b00t\n"}).BootID(); err != nil || got != "b00t" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := hostWith(t, map[string]string{file: "\n"}).BootID(); err == nil {
		t.Errorf("empty file: %q; want an error", got)
	}
	if got, err := hostWith(t, nil).BootID(); err == nil {
		t.Errorf("no file: %q; want an error", got)
	}
	if got, err := (Host{}).BootID(); err != nil || len(got) != 36 {
		t.Errorf("this boot: %q, %v", got, err)
	}
}
