package cniplugin

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// help describes the commands for the installation, which a runtime never runs: it sets CNI_COMMAND
// and no arguments.
const help = `delegated-ipam-cni is a CNI IPAM plugin that gets the addresses of pods from the daemon of
the node. The container runtime runs it, without arguments.

Exit status: 0 done; 1 failed, with the reason on stderr; 2 wrong usage.

Usage:
  delegated-ipam-cni [COMMAND]

Maintenance:
  install BIN_DIR          Copy this program into a directory of CNI plugins
  remove BIN_DIR CONF_DIR  Delete it there, unless a CNI configuration in CONF_DIR names it

Flags:
  -h, --help   help for delegated-ipam-cni
`

// command runs a command for the installation and returns the exit code.
func command(args []string, stdout, stderr io.Writer) int {
	var err error
	switch {
	case len(args) == 2 && args[0] == "install":
		err = install(args[1], stdout)
	case len(args) == 3 && args[0] == "remove":
		err = remove(args[1], args[2], stdout)
	case len(args) == 1 && (args[0] == "--help" || args[0] == "-h" || args[0] == "help"):
		_, err = fmt.Fprint(stdout, help)
	default:
		fmt.Fprintf(stderr, "Error: got %q; expected install BIN_DIR, or remove BIN_DIR CONF_DIR\nRun '%s --help' for usage.\n", args, Type)
		return 2
	}
	if err != nil {
		fmt.Fprintf(stderr, "%s %s: %v\n", Type, args[0], err)
		return 1
	}
	return 0
}

// install copies this program into a directory. A runtime that starts it meanwhile gets the old or the
// new one.
func install(dir string, stdout io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, Type)
	if isInstalled(path, program) {
		_, err = fmt.Fprintf(stdout, "%s is up to date\n", path)
		return err
	}
	// The name is fixed, so that a copy which was interrupted is replaced by the next one.
	part := filepath.Join(dir, "."+Type+".new")
	if err := errors.Join(removeFile(part), writeFile(part, program)); err != nil {
		return err
	}
	if err := os.Rename(part, path); err != nil {
		return err
	}
	if err := syncDir(dir); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "installed %s\n", path)
	return err
}

// isInstalled reports whether a path is a file as install creates it: root runs it, so no other user may
// be able to change it.
func isInstalled(path string, program []byte) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != programMode {
		return false
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Geteuid() {
		return false
	}
	content, err := os.ReadFile(path)
	return err == nil && bytes.Equal(content, program)
}

// syncDir makes a rename in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// programMode is the mode of the installed program, a regular file.
const programMode fs.FileMode = 0o755

// writeFile writes a new file durably.
func writeFile(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, programMode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Chmod(programMode), f.Sync(), f.Close())
}

// remove deletes the program from a directory, unless a configuration in confDir may name it: pods
// could neither be started nor ended.
func remove(dir, confDir string, stdout io.Writer) error {
	paths, networks, err := configurations(confDir, ".conf", ".conflist", ".json") // as libcni
	// The directory of a network may have further plugins of it (CNI 1.1).
	for _, network := range networks {
		plugins, _, networkErr := configurations(network, ".conf")
		paths, err = append(paths, plugins...), errors.Join(err, networkErr)
	}
	if err != nil {
		return err
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if bytes.Contains(content, []byte(`"`+Type+`"`)) {
			return fmt.Errorf("%s names it, so pods would neither start nor end; expected a configuration with the plugin of ipam.delegate in its place", path)
		}
	}
	path := filepath.Join(dir, Type)
	if err := errors.Join(removeFile(filepath.Join(dir, "."+Type+".new")), removeFile(path)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s is removed\n", path)
	return err
}

// configurations returns the files with one of the extensions in a directory, which may be absent, and its directories.
func configurations(dir string, extensions ...string) (paths, dirs []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch {
		case e.IsDir():
			dirs = append(dirs, path)
		case slices.Contains(extensions, filepath.Ext(path)):
			paths = append(paths, path)
		}
	}
	return paths, dirs, nil
}

// removeFile deletes a file that may be absent.
func removeFile(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
