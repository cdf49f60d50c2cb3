package cli

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/spf13/pflag"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/app"
	"github.com/delegated-ipam/delegated-ipam/pkg/doctor"
	"github.com/delegated-ipam/delegated-ipam/pkg/option"
)

// serviceLink are the variables that Kubernetes sets in each pod for a Service whose
// name begins with delegated-ipam (Kubernetes, pkg/kubelet/envvars): nobody's mistake.
var serviceLink = regexp.MustCompile(`_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)$|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// ownOptions are the options of serve as doctor itself is told them.
type ownOptions struct {
	env   map[string]string
	serve *serveOptions
	flags *pflag.FlagSet
}

// found is what they come to.
type found struct {
	ownOptions
	// socket is the sidecar's by these options; empty to leave it to $CILIUM_SOCK.
	socket string
	from   sources
	config *app.Config
	doctor.Options
}

// find fills in the environment and the configuration folder. What cannot be used is
// noted, and no reason not to look further.
func (o ownOptions) find(all *pflag.FlagSet) found {
	f := found{ownOptions: o, Options: doctor.Options{Unknown: slices.DeleteFunc(unknownVariables(o.env, all), serviceLink.MatchString)}}
	from, err := fill(o.flags, o.env, o.serve.ConfigDir)
	f.from = from
	var config app.Config
	if err == nil {
		config, err = o.serve.complete()
	}
	if err != nil {
		f.Unusable, f.Refused = true, each(err)
		return f
	}
	f.config, f.Refused = &config, each(config.ValidateValues())
	if o.env[option.SocketEnv] == "" || from["socket-path"] == fromFlag {
		f.socket = config.SocketPath
	}
	return f
}

// compare returns the configuration to go by, nil if there is none: that of the
// sidecar if it says it. What doctor was told otherwise is noted.
func (f found) compare(status *models.DelegatedIPAMStatus) (*app.Config, doctor.Options) {
	if status == nil || len(status.Options) == 0 {
		return f.config, f.Options
	}
	theirs, flags := newServeOptions(status.NodeName)
	theirs.InPod = f.serve.InPod
	for _, o := range status.Options {
		if flags.Lookup(o.Name) == nil {
			continue // of another version
		}
		if err := flags.Set(o.Name, o.Value); err != nil {
			return f.config, f.refuse(fmt.Errorf("the sidecar's own option --%s cannot be read by this version: %w", o.Name, err))
		}
		if f.differs(o, flags.Lookup(o.Name).Value.String()) {
			f.Differing = append(f.Differing, doctor.Difference{
				Option: o.Name, There: o.Value, ThereFrom: o.Source,
				Here: f.flags.Lookup(o.Name).Value.String(), HereFrom: string(f.from[o.Name]),
			})
		}
	}
	config, err := theirs.complete()
	if err != nil {
		return f.config, f.refuse(err)
	}
	f.FromSidecar = true
	return &config, f.Options
}

func (f found) refuse(err error) doctor.Options {
	f.Refused = append(f.Refused, err)
	return f.Options
}

// differs tells whether doctor was told something else than the sidecar, by a place
// that would count for the sidecar, too: what a flag of the sidecar overrides is no
// difference, nor is a default.
func (f found) differs(theirs *models.OptionValue, value string) bool {
	here := f.from[theirs.Name]
	return here != "" && here != fromDefault && rank(here) <= rank(source(theirs.Source)) &&
		f.flags.Lookup(theirs.Name).Value.String() != value
}

// rank is lower for a place that counts before others.
func rank(s source) int {
	return map[source]int{fromFlag: 0, fromEnvironment: 1, fromConfigDir: 2, fromDefault: 3}[s]
}

// each are the errors that an error of errors.Join holds.
func each(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, each(e)...)
	}
	return all
}
