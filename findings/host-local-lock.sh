#!/bin/sh
# host-local-lock.sh: does host-local's allocator allocate when its store cannot be locked?
#
# Version: plugins/ipam/host-local/backend/allocator of github.com/containernetworking/plugins v1.10.0.
#
# One would guess: no. Its interface backend.Store has Lock() error and Unlock() error, and Get and Release
# begin with Lock, so a store that returns an error from Lock makes both fail.
#
# Observed: both ignore the error and go on without the lock, and report success. A store must hold its lock
# before it is given to the allocator (Get and Release in backend/allocator/allocator.go).
#
# Output:
#   Lock returned: no lock
#   Get returned 10.1.0.2/24 <nil>; reserved for pod
#   Lock returned: no lock
#   Release returned <nil>
#
# Usage: host-local-lock.sh. It needs go in PATH. The exit status is 1 if the behaviour differs from
# the output above, and 2 if something is missing.
set -eu
command -v go >/dev/null || { echo "missing: go" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat >main.go <<'EOF'
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"

	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"
)

type store struct{ reserved string }

func (*store) Lock() error {
	err := errors.New("no lock")
	fmt.Println("Lock returned:", err)
	return err
}
func (*store) Unlock() error                         { return nil }
func (*store) Close() error                          { return nil }
func (*store) LastReservedIP(string) (net.IP, error) { return nil, fs.ErrNotExist }
func (*store) ReleaseByID(string, string) error      { return nil }
func (*store) GetByID(string, string) []net.IP       { return nil }
func (s *store) Reserve(id, _ string, _ net.IP, _ string) (bool, error) {
	s.reserved = id
	return true, nil
}

func main() {
	config := `{"cniVersion":"1.0.0","name":"net","ipam":{"type":"host-local","ranges":[[{"subnet":"10.1.0.0/24"}]]}}`
	c, _, err := allocator.LoadIPAMConfig([]byte(config), "")
	if err != nil {
		panic(err)
	}
	s := &store{}
	a := allocator.NewIPAllocator(&c.Ranges[0], s, 0)
	got, err := a.Get("pod", "eth0", nil)
	fmt.Println("Get returned", got.Address.String(), err, "; reserved for", s.reserved)
	fmt.Println("Release returned", a.Release("pod", "eth0"))
}
EOF
export GOFLAGS='' GO111MODULE=on
go mod init example >/dev/null 2>&1
go get github.com/containernetworking/plugins@v1.10.0 >/dev/null 2>&1 || exit 2
go mod tidy >/dev/null 2>&1 || exit 2
out=$(go run . | sed 's/ ;/;/')
echo "$out"
expected='Lock returned: no lock
Get returned 10.1.0.2/24 <nil>; reserved for pod
Lock returned: no lock
Release returned <nil>'
[ "$out" = "$expected" ] || { echo "expected: $expected" >&2; exit 1; }
