package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/delegated-ipam/delegated-ipam/pkg/app"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// configDirOption names the folder of files, and so cannot be one of them.
const configDirOption = "config-dir"

// withConfigDir adds the folder to the other options, in the order of their names:
// who reads that a value came from it wants to know which it is.
func (p program) withConfigDir(others []app.Option, dir *pflag.Flag) []app.Option {
	from := fromDefault
	switch {
	case dir.Changed:
		from = fromFlag
	case p.env[envName(configDirOption)] != "":
		from = fromEnvironment
	}
	all := append(others, app.Option{Name: dir.Name, Value: dir.Value.String(), Source: string(from)})
	slices.SortFunc(all, func(a, b app.Option) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// readConfigDir reads one option from each file of a folder: its name is the
// option's, its content the value without the line end. Names that begin with a
// dot are not looked at: of a mounted ConfigMap they hold the versions (..data
// and what it leads to), and the files beside them are links into these. Any
// other name that is no option is an error that names all such names.
func readConfigDir(dir string, options *pflag.FlagSet) (map[string]any, error) {
	if dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, option.WrongUsage("--%s is %q; expected a folder that can be read: %w", configDirOption, dir, err)
	}
	values := map[string]any{}
	var errs []error
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		if options.Lookup(name) == nil {
			errs = append(errs, option.WrongUsage("%s is no option of serve; expected files named as its flags are, without the dashes in front", filepath.Join(dir, name)))
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			errs = append(errs, option.WrongUsage("option %s cannot be read: %w", name, err))
			continue
		}
		values[name] = strings.TrimRight(string(text), "\r\n")
	}
	return values, errors.Join(errs...)
}
