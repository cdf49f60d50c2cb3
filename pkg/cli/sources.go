package cli

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/delegated-ipam/delegated-ipam/pkg/app"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// envPrefix begins the name of each environment variable that is an option.
const envPrefix = "DELEGATED_IPAM_"

// source is where the value of an option came from.
type source string

// The sources, best first: the value of a better one counts.
const (
	fromFlag        source = "flag"
	fromEnvironment source = "environment"
	fromConfigDir   source = "config-dir"
	fromDefault     source = "default"
)

// sources say for each option where its value came from.
type sources map[string]source

// fill gives a value to each option that no flag has set, and says for each
// where its value came from. dir is the configuration folder; empty for none.
// Errors name the variable or file, what it holds and what is expected.
func fill(options *pflag.FlagSet, env map[string]string, dir string) (sources, error) {
	environment := optionsIn(env, options)
	folder, err := readConfigDir(dir, options)
	if err != nil {
		return nil, err
	}
	merged := viper.New()
	if err := errors.Join(merged.MergeConfigMap(folder), merged.MergeConfigMap(environment)); err != nil {
		return nil, err
	}
	from, where := sources{}, ""
	var errs []error
	options.VisitAll(func(f *pflag.Flag) {
		switch {
		case f.Changed:
			from[f.Name] = fromFlag
			return
		case !merged.InConfig(f.Name):
			from[f.Name] = fromDefault
			return
		case environment[f.Name] != nil:
			from[f.Name], where = fromEnvironment, envName(f.Name)
		default:
			from[f.Name], where = fromConfigDir, filepath.Join(dir, f.Name)
		}
		if err := options.Set(f.Name, merged.GetString(f.Name)); err != nil {
			errs = append(errs, option.WrongValue(where, err))
		}
	})
	return from, errors.Join(errs...)
}

// values are the options with their values, by name.
func (s sources) values(options *pflag.FlagSet) []app.Option {
	var all []app.Option
	options.VisitAll(func(f *pflag.Flag) {
		all = append(all, app.Option{Name: f.Name, Value: f.Value.String(), Source: string(s[f.Name])})
	})
	return all
}

// envName is the environment variable of an option.
func envName(option string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(option, "-", "_"))
}

// optionsIn are the options that the environment sets. An empty variable counts
// as not set: a manifest often has it for a value that a chart left open.
func optionsIn(env map[string]string, options *pflag.FlagSet) map[string]any {
	out := map[string]any{}
	options.VisitAll(func(f *pflag.Flag) {
		if text := env[envName(f.Name)]; text != "" {
			out[f.Name] = text
		}
	})
	return out
}

// unknownVariables are the names in the environment that look like options and
// are none, sorted. They are no error: for a Service called delegated-ipam,
// Kubernetes itself sets DELEGATED_IPAM_SERVICE_HOST and others in every pod.
func unknownVariables(env map[string]string, flags *pflag.FlagSet) []string {
	known := map[string]bool{}
	flags.VisitAll(func(f *pflag.Flag) { known[envName(f.Name)] = true })
	return slices.DeleteFunc(slices.Sorted(maps.Keys(env)), func(name string) bool {
		return !strings.HasPrefix(name, envPrefix) || known[name]
	})
}
