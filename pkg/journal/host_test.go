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

func TestMachineIDIsTheFirstThatIsKnown(t *testing.T) {
	const machineID, productUUID = "etc/machine-id", "sys/class/dmi/id/product_uuid"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"the machine ID comes first":                   {map[string]string{machineID: "abc\n", productUUID: "DEF\n"}, "abc"},
		"the firmware's UUID stands in":                {map[string]string{productUUID: "DEF\n"}, "def"},
		"an empty machine ID counts as none":           {map[string]string{machineID: "\n", productUUID: "DEF"}, "def"},
		"a machine that has not booted yet has no ID":  {map[string]string{machineID: "uninitialized\n"}, ""},
		"a machine without either is simply not known": {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hostWith(t, c.files).MachineID(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestBootIDIsTheKernelsOrAnError(t *testing.T) {
	const file = "proc/sys/kernel/random/boot_id"
	if got, err := hostWith(t, map[string]string{file: "b00t\n"}).BootID(); err != nil || got != "b00t" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := hostWith(t, map[string]string{file: "\n"}).BootID(); err == nil {
		t.Errorf("an empty file gave %q", got)
	}
	if got, err := hostWith(t, nil).BootID(); err == nil {
		t.Errorf("no file gave %q", got)
	}
	if got, err := (Host{}).BootID(); err != nil || len(got) != 36 {
		t.Errorf("this machine's is %q, %v", got, err)
	}
}
