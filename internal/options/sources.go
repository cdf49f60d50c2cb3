package options

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
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

// Set is the options of one command with their sources.
type Set struct {
	flags *pflag.FlagSet
	// prefix begins the environment variables; empty for options that no variable sets.
	prefix  string
	sources map[string]Source
	// skipped are the files that SkippedFiles returns.
	skipped []string
}

func newSet(prefix string, all []Option) *Set {
	s := &Set{flags: pflag.NewFlagSet("", pflag.ContinueOnError), prefix: prefix}
	Register(s.flags, all...)
	if prefix != "" {
		s.flags.VisitAll(func(f *pflag.Flag) {
			if f.Annotations == nil {
				f.Annotations = map[string][]string{}
			}
			f.Annotations[EnvAnnotation] = []string{s.variable(f.Name)}
		})
	}
	return s
}

// Flags returns the options as flags, to be added to those of a command.
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

// Resolve sets each option that no flag has set from the environment or from its file in
// --config-dir. The error has each value that cannot be read, with its variable or file.
func (s *Set) Resolve(env map[string]string) error {
	s.sources = nil
	sources := map[string]Source{}
	var errs []error
	set := func(name, where, text string, from Source) {
		sources[name] = from
		if err := s.flags.Set(name, text); err != nil {
			errs = append(errs, InvalidValue(where, err))
		}
	}
	s.flags.VisitAll(func(f *pflag.Flag) {
		variable := s.variable(f.Name)
		switch {
		case f.Changed:
			sources[f.Name] = FromFlag
		// An empty variable counts as not set: a manifest often has it for a value that a chart
		// left open.
		case variable != "" && env[variable] != "":
			set(f.Name, variable, env[variable], FromEnvironment)
		default:
			sources[f.Name] = FromDefault
		}
	})
	dir, files, err := s.readConfigDir()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if sources[name] == FromDefault {
			set(name, filepath.Join(dir, name), files[name], FromConfigDir)
		}
	}
	s.sources = sources
	return errors.Join(errs...)
}

// variable returns the environment variable of an option, empty if there is none.
func (s *Set) variable(name string) string {
	if s.prefix == "" {
		return ""
	}
	return s.prefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// UnknownVariables returns the names in the environment that have the prefix of the options and
// are not an option, sorted. They are not an error: for a Service called delegated-ipam,
// Kubernetes itself sets DELEGATED_IPAM_SERVICE_HOST and others in every pod.
func (s *Set) UnknownVariables(env map[string]string) []string {
	known := map[string]bool{}
	s.flags.VisitAll(func(f *pflag.Flag) { known[s.variable(f.Name)] = true })
	return slices.DeleteFunc(slices.Sorted(maps.Keys(env)), func(name string) bool {
		return s.prefix == "" || !strings.HasPrefix(name, s.prefix) || known[name]
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
