package options

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/delegated-ipam/delegated-ipam/internal/files"
)

// Source is where the value of an option came from.
type Source string

// The sources, by precedence: the first that has an option applies.
const (
	FromFlag        Source = "flag"
	FromEnvironment Source = "environment"
	FromConfigDir   Source = "config-dir"
	FromDefault     Source = "default"
)

var byPrecedence = []Source{FromFlag, FromEnvironment, FromConfigDir, FromDefault}

// Before reports whether s takes precedence over other, or is the same source.
func (s Source) Before(other Source) bool {
	return slices.Index(byPrecedence, s) <= slices.Index(byPrecedence, other)
}

// Setting is the value of one option and where it came from.
type Setting struct {
	// Name is the flag without its dashes, Value as the flag takes it.
	Name, Value string
	Source      Source
}

// Set is the options of the daemon with their sources.
type Set struct {
	flags   *pflag.FlagSet
	sources map[string]Source
	skipped []string
}

// Flags returns the options as flags, to be added to the flags of a command.
func (s *Set) Flags() *pflag.FlagSet { return s.flags }

// Set sets an option to a value. known is false for a name that is not an option of s.
func (s *Set) Set(name, value string) (known bool, err error) {
	if s.flags.Lookup(name) == nil {
		return false, nil
	}
	return true, s.flags.Set(name, value)
}

// Setting returns an option of s by its name; its Source is empty before Resolve.
func (s *Set) Setting(name string) Setting {
	return Setting{name, s.flags.Lookup(name).Value.String(), s.sources[name]}
}

// Settings returns all options, sorted by name.
func (s *Set) Settings() []Setting {
	var all []Setting
	s.flags.VisitAll(func(f *pflag.Flag) { all = append(all, s.Setting(f.Name)) })
	return all
}

// SkippedFiles returns the paths in --config-dir that Resolve has skipped and that deserve a
// warning, sorted: directories, and the backup and temporary files of editors and packagers.
func (s *Set) SkippedFiles() []string { return s.skipped }

// Resolve sets each option that no flag has set from the environment or from its file in
// --config-dir. The error has each value that cannot be read, with its variable or file.
func (s *Set) Resolve(env map[string]string) error {
	s.sources = nil
	sources := map[string]Source{}
	var errs []error
	set := func(name, where, text string, from Source) {
		sources[name] = from
		if err := s.flags.Set(name, text); err != nil {
			errs = append(errs, FlagError(where, err))
		}
	}
	s.flags.VisitAll(func(f *pflag.Flag) {
		variable := variable(f.Name)
		switch {
		case f.Changed:
			sources[f.Name] = FromFlag
		// An empty variable counts as not set: a manifest often has it for a value that a chart
		// left open.
		case env[variable] != "":
			set(f.Name, variable, env[variable], FromEnvironment)
		default:
			sources[f.Name] = FromDefault
		}
	})
	found, err := s.readConfigDir()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, f := range found {
		if sources[f.option] == FromDefault {
			set(f.option, f.path, f.text, FromConfigDir)
		}
	}
	s.sources = sources
	return errors.Join(errs...)
}

// Reread resolves fresh, an unresolved set of the same options, with the flags of s, the
// environment and the files that are in --config-dir now. s stays as it is. Errors are as in Resolve.
func (s *Set) Reread(fresh *Set, env map[string]string) error {
	for name, source := range s.sources {
		if source == FromFlag {
			if _, err := fresh.Set(name, s.Setting(name).Value); err != nil {
				return err
			}
		}
	}
	return fresh.Resolve(env)
}

// variable returns the environment variable of an option.
func variable(name string) string {
	return daemonPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// UnknownVariables returns the names in the environment that have the prefix of the options and
// are not an option, sorted. They are not an error: for a Service called delegated-ipam,
// Kubernetes itself sets DELEGATED_IPAM_SERVICE_HOST and others in every pod.
func (s *Set) UnknownVariables(env map[string]string) []string {
	known := map[string]bool{}
	s.flags.VisitAll(func(f *pflag.Flag) { known[variable(f.Name)] = true })
	return slices.DeleteFunc(slices.Sorted(maps.Keys(env)), func(name string) bool {
		return !strings.HasPrefix(name, daemonPrefix) || known[name]
	})
}

// Environment returns the variables of os.Environ by name; the last of several with one name
// applies.
func Environment(environ []string) map[string]string {
	env := make(map[string]string, len(environ))
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok {
			env[name] = value
		}
	}
	return env
}

// configDir is the option that names a directory of options, and so cannot be a file in it.
const configDir = "config-dir"

// maxConfigFile bounds a file in --config-dir, in bytes. Real ones have one line.
const maxConfigFile = 64 << 10

// configFile is a file in --config-dir.
type configFile struct{ option, path, text string }

// readConfigDir returns the options in --config-dir: the name of each file is the option, its
// content the value without the line end. Names that begin with a dot are skipped: a mounted
// ConfigMap keeps its versions there (..data and its target), and the other files are links into
// these. Backup files and directories are skipped, too. Any other name is an error.
func (s *Set) readConfigDir() (found []configFile, err error) {
	s.skipped = nil
	f := s.flags.Lookup(configDir)
	if f == nil || f.Value.String() == "" {
		return nil, nil
	}
	dir := f.Value.String()
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("--%s is %q; expected a readable directory: %w", configDir, dir, files.Cause(err))
	}
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
			}
			found = append(found, configFile{name, path, strings.TrimRight(string(text), "\r\n")})
		}
	}
	return found, errors.Join(errs...)
}

// isDir reports whether a path leads to a directory.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// backupExtensions belong to backup, temporary and replaced files of editors, patch, dpkg and rpm.
// The swap files of vim end in .swp, .swo and so on.
var backupExtensions = []string{
	".bak", ".backup", ".orig", ".old", ".save", ".tmp", ".rej", ".swp", ".swo", ".swn", ".swx",
	".dpkg-old", ".dpkg-new", ".dpkg-dist", ".dpkg-bak", ".dpkg-tmp", ".rpmsave", ".rpmnew", ".rpmorig",
}

// isBackup reports whether an editor or a package manager leaves a file of that name next to the
// edited one.
func isBackup(name string) bool {
	return strings.HasSuffix(name, "~") || strings.HasPrefix(name, "#") || strings.HasPrefix(name, ".#") ||
		slices.Contains(backupExtensions, strings.ToLower(filepath.Ext(name)))
}
