package statedir

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// Host reads the IDs of this boot and this machine.
type Host struct {
	// Root is the directory that contains proc, etc and sys; empty for "/".
	Root string
}

// BootID returns the kernel's random ID of this boot (proc(5), random/boot_id). After a reboot
// it differs, and a plugin may have lost its last writes.
func (h Host) BootID() (string, error) {
	path := h.path("proc/sys/kernel/random/boot_id")
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("boot ID: %w", err)
	}
	id := strings.TrimSpace(string(data))
	if id == "" {
		return "", fmt.Errorf("boot ID: %s is empty", path)
	}
	return id, nil
}

// Booted returns the time of the boot, by the clock as it is now.
func (h Host) Booted() (time.Time, error) {
	stat, err := procfs.NewFS(h.path("proc"))
	if err != nil {
		return time.Time{}, err
	}
	s, err := stat.Stat()
	return time.Unix(int64(s.BootTime), 0), err
}

// MachineID returns the ID of this machine: machine-id(5), otherwise the firmware's product UUID,
// otherwise empty, which means unknown. In a container it is the host's only if the host's file
// is mounted; an image must not contain its own.
func (h Host) MachineID() string {
	for _, name := range []string{"etc/machine-id", "sys/class/dmi/id/product_uuid"} {
		data, err := os.ReadFile(h.path(name))
		// An image has "uninitialized" before its first boot (machine-id(5)).
		if id := strings.TrimSpace(string(data)); err == nil && id != "" && id != "uninitialized" {
			return strings.ToLower(id)
		}
	}
	return ""
}

func (h Host) path(name string) string { return filepath.Join(cmp.Or(h.Root, "/"), name) }
