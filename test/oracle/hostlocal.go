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
	networks, err := os.ReadDir(dataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, network := range networks {
		if !network.IsDir() {
			continue
		}
		of, without, err := readNetwork(dataDir, network.Name())
		if err != nil {
			return nil, nil, err
		}
		leases, empty = append(leases, of...), append(empty, without...)
	}
	return leases, empty, nil
}

func readNetwork(dataDir, network string) (leases []Lease, empty []string, err error) {
	files, err := os.ReadDir(filepath.Join(dataDir, network))
	if err != nil {
		return nil, nil, err
	}
	for _, f := range files {
		ip, err := netip.ParseAddr(f.Name())
		if err != nil {
			continue // "lock" and "last_reserved_ip.N" are host-local's own
		}
		name := filepath.Join(dataDir, network, f.Name())
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // freed since the directory was read
		}
		if err != nil {
			return nil, nil, err
		}
		l := Lease{Network: network, IP: ip}
		l.ContainerID, l.Interface, _ = strings.Cut(strings.TrimSpace(string(data)), "\r\n")
		if l.ContainerID == "" {
			empty = append(empty, name)
			continue
		}
		leases = append(leases, l)
	}
	return leases, empty, nil
}
