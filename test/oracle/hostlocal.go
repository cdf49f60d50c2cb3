package oracle

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// HostLocal reads the leases of host-local: dataDir/<network>/<address>, with the lines container
// ID and interface (plugins/ipam/host-local/backend/disk). A missing directory has none. A file of
// an address without a container ID is an error: no CNI verb can free it.
func HostLocal(dataDir string) ([]Lease, error) {
	leases, empty, err := HostLocalAfterKill(dataDir)
	if err == nil && len(empty) > 0 {
		err = fmt.Errorf("%s: empty, so no CNI verb can free that address", empty[0])
	}
	return leases, err
}

// HostLocalAfterKill is HostLocal where host-local may have been killed while it wrote: files
// without a container ID are not an error, but returned separately.
func HostLocalAfterKill(dataDir string) (leases []Lease, empty []string, err error) {
	err = filepath.WalkDir(dataDir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			ip, notAddress := netip.ParseAddr(d.Name())
			if notAddress != nil {
				return nil // "lock" and "last_reserved_ip.N" are host-local's own
			}
			var data []byte
			if data, err = os.ReadFile(path); err == nil {
				l := Lease{Network: filepath.Base(filepath.Dir(path)), IP: ip}
				l.ContainerID, l.Interface, _ = strings.Cut(strings.TrimSpace(string(data)), "\r\n")
				if l.ContainerID == "" {
					empty = append(empty, path)
				} else {
					leases = append(leases, l)
				}
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the directory, or freed since its directory was read
		}
		return err
	})
	return leases, empty, err
}
