package options

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// configDir is the option that names a directory of options, and so cannot be a file in it.
const configDir = "config-dir"

// maxConfigFile bounds a file in --config-dir, in bytes. Real ones have one line.
const maxConfigFile = 64 << 10

// SkippedFiles returns the paths in --config-dir that Resolve has skipped and that deserve a
// warning, sorted: directories, and the backup and temporary files of editors and packagers.
func (s *Set) SkippedFiles() []string { return s.skipped }

// readConfigDir returns the directory and the options in it: the name of each file is that of the
// option, its content the value without the line end. Names that begin with a dot are skipped: a
// mounted ConfigMap keeps its versions there (..data and its target), and the files beside them
// are links into these. Backup files and directories are skipped, too. Any other name is an error.
func (s *Set) readConfigDir() (dir string, values map[string]string, err error) {
	s.skipped = nil
	f := s.flags.Lookup(configDir)
	if f == nil || f.Value.String() == "" {
		return "", nil, nil
	}
	dir = f.Value.String()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return dir, nil, fmt.Errorf("--%s is %q; expected a readable directory: %w", configDir, dir, files.Cause(err))
	}
	values = map[string]string{}
	var errs []error
	for _, e := range entries {
		name, path := e.Name(), filepath.Join(dir, e.Name())
		isOption := name != configDir && s.flags.Lookup(name) != nil
		switch {
		case isBackup(name):
			s.skipped = append(s.skipped, path)
		case strings.HasPrefix(name, "."):
		// In place of an option a directory is a mistake that would leave the option unset.
		case !isOption && isDir(path):
			s.skipped = append(s.skipped, path)
		case !isOption:
			errs = append(errs, fmt.Errorf("%s is not an option of serve; expected files named after its flags, without the leading dashes", path))
		default:
			text, err := files.Read(path, maxConfigFile)
			if err != nil {
				errs = append(errs, fmt.Errorf("option %s cannot be read: %s: %w; expected a file of at most %d bytes with its value", name, path, err, maxConfigFile))
				continue
			}
			values[name] = strings.TrimRight(string(text), "\r\n")
		}
	}
	return dir, values, errors.Join(errs...)
}

// isDir reports whether a path is that of a directory or of a link to one.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// backupExtensions are those of backup, temporary and replaced files of editors, patch, dpkg and
// rpm. The swap files of vim end in .swp, .swo and so on.
var backupExtensions = []string{
	".bak", ".backup", ".orig", ".old", ".save", ".tmp", ".rej", ".swp", ".swo", ".swn", ".swx",
	".dpkg-old", ".dpkg-new", ".dpkg-dist", ".dpkg-bak", ".dpkg-tmp", ".rpmsave", ".rpmnew", ".rpmorig",
}

// isBackup reports whether a name is that of a file that an editor or a package manager leaves
// beside the edited one.
func isBackup(name string) bool {
	return strings.HasSuffix(name, "~") || strings.HasPrefix(name, "#") || strings.HasPrefix(name, ".#") ||
		slices.Contains(backupExtensions, strings.ToLower(filepath.Ext(name)))
}
