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

// HostLocal reads what host-local holds: one file per address under
// dataDir/<network>, named by the address, its lines the container ID and the
// interface (plugins/ipam/host-local/backend/disk). A data folder that is not
// there yet holds nothing. A file that is named like an address but has no
// container ID is an error: no CNI verb can ever free it.
func HostLocal(dataDir string) ([]Lease, error) {
	leases, empty, err := HostLocalKilled(dataDir)
	if err == nil && len(empty) > 0 {
		err = fmt.Errorf("%s: empty, so nobody can free that address", empty[0])
	}
	return leases, err
}

// HostLocalKilled is HostLocal where host-local may have been killed while it
// wrote: files without a container ID, which belong to nobody, are returned apart.
func HostLocalKilled(dataDir string) (leases []Lease, empty []string, err error) {
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
			continue // freed since the folder was read
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
