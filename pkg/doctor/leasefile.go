package doctor

import (
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// errOdd is that of what host-local never makes.
var errOdd = errors.New("it is no file that host-local makes")

// maxLease is more than an ID and an interface take, in bytes.
const maxLease = 4 << 10

// addressOf is the address that a file of host-local stands for. It writes each in one
// form only. Another form is not its file, and must not be taken for the one of the
// same address: "FD00::5" is not "fd00::5". Nor are "lock" and "last_reserved_ip.0".
func addressOf(name string) (ip netip.Addr, ok bool) {
	ip, err := netip.ParseAddr(name)
	return ip, err == nil && ip.Zone() == "" && ip.String() == name
}

// readLease returns what the file of an address names; an empty id if it names nobody.
func readLease(dir *os.Root, name string) (id, ifname string, err error) {
	info, err := dir.Lstat(name)
	if err != nil {
		return "", "", err
	}
	if !info.Mode().IsRegular() {
		return "", "", errOdd // a link may lead out of the folder
	}
	file, err := openRegular(dir, name, os.O_RDONLY, 0)
	if err != nil {
		return "", "", err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxLease))
	if err != nil {
		return "", "", err
	}
	if len(data) == maxLease {
		return "", "", errOdd
	}
	id, ifname, _ = strings.Cut(strings.TrimSpace(string(data)), "\r\n")
	return id, ifname, nil
}

// openRegular opens a file. What is none, such as a pipe without a writer, would keep
// the one who opens it waiting, and is refused.
func openRegular(dir *os.Root, name string, flags int, mode fs.FileMode) (*os.File, error) {
	file, err := dir.OpenFile(name, flags|unix.O_NONBLOCK, mode)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errOdd}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
