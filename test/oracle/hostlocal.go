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
	networks, err := os.ReadDir(dataDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var leases []Lease
	for _, network := range networks {
		if !network.IsDir() {
			continue
		}
		of, err := readNetwork(dataDir, network.Name())
		if err != nil {
			return nil, err
		}
		leases = append(leases, of...)
	}
	return leases, nil
}

func readNetwork(dataDir, network string) ([]Lease, error) {
	files, err := os.ReadDir(filepath.Join(dataDir, network))
	if err != nil {
		return nil, err
	}
	var leases []Lease
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
			return nil, err
		}
		l := Lease{Network: network, IP: ip}
		l.ContainerID, l.Interface, _ = strings.Cut(strings.TrimSpace(string(data)), "\r\n")
		if l.ContainerID == "" {
			return nil, fmt.Errorf("%s is empty: nobody can free that address", name)
		}
		leases = append(leases, l)
	}
	return leases, nil
}
