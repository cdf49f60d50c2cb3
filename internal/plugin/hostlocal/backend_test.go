package hostlocal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/plugins/ipam/host-local/backend/allocator"
	"golang.org/x/sys/unix"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
)

// within fails the test unless a function returns: it blocks on a FIFO.
func within(t *testing.T, fifo string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second): // it hangs
		t.Errorf("a call blocks on the FIFO %s", fifo)
		peer, err := os.OpenFile(fifo, os.O_RDWR|unix.O_NONBLOCK, 0)
		check.Must(t, err)
		defer peer.Close()
		<-done
	}
}

// What host-local never creates is passed over and stays.
func TestJunkFiles(t *testing.T) {
	gcAll := config(`"subnet":"10.1.0.0/28"`, "")
	for name, make := range map[string]func(path string) error{
		"directory":       func(path string) error { return os.Mkdir(path, dirMode) },
		"FIFO":            func(path string) error { return unix.Mkfifo(path, 0o600) },
		"socket":          func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
		"link":            func(path string) error { return os.Symlink("../lease", path) },
		"link to nothing": func(path string) error { return os.Symlink("none", path) },
		"link to a lease": func(path string) error { return os.Symlink("10.1.0.6", path) },
		"link to itself":  func(path string) error { return os.Symlink(filepath.Base(path), path) },
		"large": func(path string) error {
			return errors.Join(os.WriteFile(path, []byte("a\r\neth0"), leaseMode), os.Truncate(path, 1<<40))
		},
		"binary": func(path string) error { return os.WriteFile(path, []byte("\xff\x00\r\n\r\n"), leaseMode) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newCallFixture(t)
			f.put()
			check.Must(t, os.WriteFile(filepath.Join(f.dir, "lease"), []byte("a\r\neth0"), leaseMode))
			check.Must(t, make(f.path("10.1.0.2")))
			check.Must(t, make(f.path("junk")))
			within(t, f.path("10.1.0.2"), func() {
				f.want("CHECK a eth0", gcAll, "host-local: Failed to find address added by container a")
				f.want("ADD a eth0", gcAll, "10.1.0.3")
				f.want("CHECK a eth0", gcAll, "")
				f.want("DEL a eth0", gcAll, "")
				f.want("ADD b eth0", gcAll, "10.1.0.4")
				f.want("GC - -", gcAll, "")
			})
			want := "10.1.0.2 junk last_reserved_ip.0 lock"
			check.Equal(t, "files", check.Names(t, f.path()), want)
			data, err := os.ReadFile(filepath.Join(f.dir, "lease"))
			check.Must(t, err)
			check.Equal(t, "content of another file", string(data), "a\r\neth0")
		})
		t.Run(name+" in place of the last address", func(t *testing.T) {
			f := newCallFixture(t)
			f.put("10.1.0.6=x\r\neth0")
			path := f.path(lastReserved + "0")
			check.Must(t, make(path))
			within(t, path, func() {
				if got := f.do("ADD a eth0", oneRange); !strings.HasPrefix(got, "10.1.0.") {
					check.Contains(t, got, filepath.Base(path)) // an error that names the file
					f.wantLeases(`10.1.0.6=x\r\neth0`)
				}
				f.want("DEL a eth0", oneRange, "")
			})
			f.wantLeases(`10.1.0.6=x\r\neth0`)
		})
		t.Run(name+" in place of the lock", func(t *testing.T) {
			f := newCallFixture(t)
			f.put()
			check.Must(t, make(f.path(lockFile)))
			within(t, f.path(lockFile), func() {
				if got := f.do("ADD a eth0", oneRange); got != "10.1.0.2" {
					check.Contains(t, got, "lock")
				}
			})
		})
	}
}

// Without permissions calls fail, and name the file.
func TestCallPermissions(t *testing.T) {
	for name, c := range map[string]struct {
		of   string
		mode os.FileMode
		// errs are the parts of the errors of calls; empty for success.
		errs map[string]string
	}{
		"unreadable lease":     {"10.1.0.2", 0, map[string]string{"DEL a eth0": "10.1.0.2: permission denied", "CHECK a eth0": "10.1.0.2: permission denied", "ADD b eth0": ""}},
		"read-only directory":  {"", 0o500, map[string]string{"DEL a eth0": "10.1.0.2: permission denied", "CHECK a eth0": "", "ADD b eth0": "10.1.0.3: permission denied", "GC - -": "10.1.0.2: permission denied"}},
		"unreadable directory": {"", 0o300, map[string]string{"DEL a eth0": "permission denied", "ADD b eth0": "permission denied"}},
		"unreadable lock":      {"lock", 0, map[string]string{"DEL a eth0": "lock: permission denied", "ADD b eth0": "lock: permission denied", "CHECK a eth0": "lock: permission denied"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newCallFixture(t)
			f.want("ADD a eth0", oneRange, "10.1.0.2")
			closeStores(&f.Stores)
			check.Must(t, os.Chmod(f.path(c.of), c.mode))
			check.WithoutPrivileges(t, func() {
				for call, text := range c.errs {
					if got := f.do(call, oneRange); text == "" && strings.Contains(got, "denied") || !strings.Contains(got, text) {
						t.Errorf("%s returned %q; want %q", call, got, text)
					}
				}
			})
			check.Must(t, os.Chmod(f.path(), 0o700))
			_, err := os.Stat(f.path("10.1.0.2"))
			check.NoError(t, err)
		})
	}
}

// An ADD that fails and cannot remove its leases is not a refusal: they need a DEL with its configuration.
func TestCallLeavesLeases(t *testing.T) {
	two := config(`"ranges":[[{"subnet":"10.1.0.0/29"}],[{"subnet":"fd00::/125"}]]`, "")
	for name, c := range map[string]struct {
		files []string
		from  string // the address at which the directory becomes read-only
	}{
		"its own":              {[]string{"10.1.0.2="}, "10.1.0.2"}, // a killed program's file can be written
		"of another range set": {nil, "fd00::2"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newCallFixture(t)
			f.put(append(c.files, "lock=")...)
			a := Args{ContainerID: "a", IfName: "eth0", Config: []byte(strings.ReplaceAll(two, dirMark, f.dir)), Taken: func(ip netip.Addr) bool {
				if ip.String() == c.from {
					check.Must(t, os.Chmod(f.path(), 0o500))
				}
				return false
			}}
			check.WithoutPrivileges(t, func() {
				_, err := f.Call(t.Context(), "ADD", a)
				if _, ok := errors.AsType[UnknownError](err); !ok {
					t.Errorf("ADD returned %v; want an UnknownError", err)
				}
			})
			check.Must(t, os.Chmod(f.path(), 0o700))
			f.wantLeases(`10.1.0.2=a\r\neth0`)
		})
	}
}

// On a full file system ADD fails and leaves no lease.
func TestCallFullFileSystem(t *testing.T) {
	for name, c := range map[string]struct {
		size string
		free int // pages of it for ADD
	}{
		"no page for the lease":       {"size=64k", 0},
		"no page for the last":        {"size=64k", 1},
		"no page for the second set":  {"size=64k", 2},
		"no page for its last":        {"size=64k", 3},
		"no inode for the lease":      {"nr_inodes=4", 0},
		"no inode for the last":       {"nr_inodes=5", 0},
		"no inode for the second set": {"nr_inodes=6", 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newCallFixture(t)
			check.Tmpfs(t, f.dir, "0755,"+c.size)
			f.put("lock=")
			filler := filepath.Join(f.dir, "filler")
			fill, err := os.Create(filler)
			check.Must(t, err)
			page := os.Getpagesize()
			for pages := 0; strings.HasPrefix(c.size, "size"); pages++ {
				if _, err := fill.Write(make([]byte, page)); err != nil {
					check.Must(t, fill.Truncate(int64((pages-c.free)*page)))
					break
				}
			}
			check.Must(t, fill.Close())
			two := config(`"ranges":[[{"subnet":"10.1.0.0/29"}],[{"subnet":"fd00::/125"}]]`, "")
			check.Contains(t, f.do("ADD a eth0", two), "no space left on device")
			f.wantLeases()
			f.want("DEL a eth0", two, "")
			check.Must(t, os.Remove(filler))
			if strings.HasPrefix(c.size, "nr_inodes") {
				check.Must(t, unix.Mount("", f.dir, "", unix.MS_REMOUNT, "nr_inodes=20"))
			}
			if got := f.do("ADD a eth0", two); len(strings.Fields(got)) != 2 {
				t.Errorf("ADD returned %q", got)
			}
		})
	}
}

// Calls in a directory that cannot be watched read it.
func TestCallUnwatched(t *testing.T) {
	check.Root(t)
	f := newCallFixture(t)
	if err := unix.Mount("ramfs", f.dir, "ramfs", 0, ""); err != nil {
		t.Skipf("a file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { check.Must(t, unix.Unmount(f.dir, unix.MNT_DETACH)) })
	f.checkUnwatched(errUnwatched)
}

// Calls that get no inotify instance read the directory.
func TestCallWithoutInotify(t *testing.T) {
	const inside = "DELEGATED_IPAM_TEST_WITHOUT_INOTIFY"
	if os.Getenv(inside) != "" {
		check.Must(t, os.WriteFile("/proc/sys/user/max_inotify_instances", []byte("0"), 0))
		newCallFixture(t).checkUnwatched(unix.EMFILE)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestCallWithoutInotify$")
	cmd.Env = append(os.Environ(), inside+"=1")
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}}
	out, err := cmd.CombinedOutput()
	if _, ran := errors.AsType[*exec.ExitError](err); err != nil && !ran {
		t.Skipf("a user namespace cannot be made here: %v", err)
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// checkUnwatched wants that calls work in a directory for which newIndex returns an error.
func (f *callFixture) checkUnwatched(want error) {
	f.put("10.1.0.3=", "10.1.0.4=legacy")
	if _, err := newIndex(f.path()); !errors.Is(err, want) {
		f.Fatalf("newIndex returned %v; want %v", err, want)
	}
	f.want("ADD a eth0", oneRange, "10.1.0.2")
	f.want("ADD b eth0", oneRange, "10.1.0.3")
	f.want("ADD c eth0", oneRange, "10.1.0.5")
	f.want("CHECK legacy eth0", oneRange, "")
	f.want("DEL legacy eth0", oneRange, "")
	f.put("10.1.0.6=other\r\neth0")
	f.want("DEL other eth0", oneRange, "")
	found, err := f.Find(Store{Dir: f.path()}, "a", "eth0")
	check.NoError(f, err)
	check.Equal(f, "lookup", found, []netip.Addr{netip.MustParseAddr("10.1.0.2")})
	f.want("GC - -", strings.Replace(oneRange, "{", `{"cni.dev/valid-attachments":[{"containerID":"b","ifname":"eth0"}],`, 1), "")
	f.wantLeases(`10.1.0.3=b\r\neth0`)
}

// fillRange makes leases of other containers for the first n addresses from 10.1.0.2 on, with few files.
func (f *callFixture) fillRange(n int) {
	check.Must(f, os.MkdirAll(f.path(), dirMode))
	ip := netip.MustParseAddr("10.1.0.2")
	source := ""
	for i := range n {
		var err error
		if path := f.path(ip.String()); i%1000 == 0 {
			source = path
			err = os.WriteFile(path, fmt.Appendf(nil, "other-%d\r\neth0", i), leaseMode)
		} else {
			err = os.Link(source, path)
		}
		check.Must(f, err)
		ip = ip.Next()
	}
}

// opens returns how many files in a directory a function opens.
func opens(t *testing.T, dir string, f func()) (n int) {
	t.Helper()
	events, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	check.Must(t, err)
	defer unix.Close(events)
	_, err = unix.InotifyAddWatch(events, dir, unix.IN_OPEN)
	check.Must(t, err)
	f()
	buffer := make([]byte, 64<<10)
	for {
		read, err := unix.Read(events, buffer)
		if errors.Is(err, unix.EAGAIN) {
			return n
		}
		check.Must(t, err)
		for all := buffer[:read]; len(all) > 0; {
			length := binary.NativeEndian.Uint32(all[12:])
			if length > 0 { // not the directory itself
				n++
			}
			all = all[unix.SizeofInotifyEvent+length:]
		}
	}
}

// Calls in a large store open no leases of other containers.
func TestCallLargeStore(t *testing.T) {
	t.Parallel()
	f := newCallFixture(t)
	leases := 65_000
	if testing.Short() {
		leases /= 10
	}
	f.fillRange(leases)
	large := config(`"subnet":"10.1.0.0/16"`, "")
	f.want("ADD first eth0", large, netip.AddrFrom4([4]byte{10, 1, byte((leases + 2) >> 8), byte(leases + 2)}).String())
	check.Must(t, os.Remove(f.path(lastReserved+"0"))) // so that it begins at the start
	for _, call := range []string{"ADD a eth0", "CHECK a eth0", "DEL a eth0", "DEL a eth0"} {
		if n := opens(t, f.path(), func() { f.do(call, large) }); n > 6 {
			t.Errorf("%s in a store of %d leases opened %d files; want at most 6", call, leases, n)
		}
	}
}

// Contents of files and configurations of any kind end no process, and every call ends.
func FuzzCall(f *testing.F) {
	for _, text := range []string{oneRange, config(`"ranges":[[{"subnet":"fd00::/64","gateway":"fd00::1"}]],"routes":[{"dst":"::/0"}]`, `,"args":{"cni":{"ips":["fd00::5/64"]}}`), "{}", `{"ipam":null}`} {
		f.Add(text, "IP=10.1.0.4", "10.1.0.2", []byte("a\r\neth0"))
	}
	for _, text := range panics {
		f.Add(text, "", "last_reserved_ip.0", []byte("10.1.0.255"))
	}
	f.Add(oneRange, "IP", "lock", []byte{0})
	f.Fuzz(func(t *testing.T, config, args, name string, content []byte) {
		fixture := newCallFixture(t)
		written, ok := confined(config, fixture.dir)
		if !ok {
			t.Skip("it may write elsewhere")
		}
		if filepath.IsLocal(name) && filepath.Base(name) == name {
			check.Must(t, os.MkdirAll(fixture.path(), dirMode))
			_ = os.WriteFile(fixture.path(name), content, leaseMode)
		}
		_ = CheckConfig(written)
		for _, command := range []string{"ADD", "CHECK", "ADD", "GC", "DEL"} {
			result, err := fixture.Call(t.Context(), command, Args{ContainerID: "a", IfName: "eth0", CNIArgs: args, Config: written})
			if _, ok := errors.AsType[UnknownError](err); ok {
				t.Errorf("%s: %v", command, err)
			}
			if (result != nil) != (command == "ADD" && err == nil) {
				t.Errorf("%s returned %v, %v", command, result, err)
			}
		}
	})
}

// confined returns a configuration whose store is in a directory, and false if it cannot be made so.
func confined(config, dir string) (written []byte, ok bool) {
	defer func() {
		if recover() != nil {
			ok = true // LoadIPAMConfig, which comes before every file
		}
	}()
	written = []byte(strings.ReplaceAll(config, dirMark, dir))
	c, _, err := allocator.LoadIPAMConfig(written, "")
	return written, err != nil || c.DataDir == dir && c.ResolvConf == ""
}
