package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar/doctor"
)

// serviceLink matches the variables that Kubernetes sets in each pod for a Service whose name
// begins with delegated-ipam (Kubernetes, pkg/kubelet/envvars). They are ignored.
var serviceLink = regexp.MustCompile(`_SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)$|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// doctorConfig are the options of serve here, with what doctor has found in their sources.
type doctorConfig struct {
	serveOptions
	// socket is the socket of the sidecar by these options; empty to leave it to $CILIUM_SOCK.
	socket string
	// config is nil if the options cannot be used.
	config *sidecar.Config
	doctor.Options
}

// resolveForDoctor reads the environment and --config-dir. Errors become findings, and doctor
// continues.
func resolveForDoctor(o serveOptions) doctorConfig {
	r := doctorConfig{serveOptions: o, Options: doctor.Options{Unknown: slices.DeleteFunc(o.set.UnknownVariables(o.env), serviceLink.MatchString)}}
	config, err := o.resolve()
	r.Skipped = o.set.SkippedFiles()
	if err != nil {
		r.Invalid = split(errors.Unwrap(err)) // of the *cmdline.UsageError
		return r
	}
	r.config, r.Invalid = &config, split(config.Sidecar.Validate())
	if o.env[options.SocketEnv] == "" || o.set.Setting("socket-path").Source == options.FromFlag {
		r.socket = config.SocketPath
	}
	return r
}

// compare returns the configuration to inspect, nil if there is none: the sidecar's if its
// status has it. Options that doctor has otherwise become findings.
func (r doctorConfig) compare(status *models.DelegatedIPAMStatus) (*sidecar.Config, doctor.Options) {
	if status == nil || len(status.Options) == 0 {
		return r.config, r.Options
	}
	theirs, set := options.NewSidecar(r.env)
	for _, o := range status.Options {
		known, err := set.Set(o.Name, o.Value)
		if !known {
			continue // an option of another version
		}
		if err != nil {
			return r.config, r.invalid(fmt.Errorf("the sidecar's own option --%s cannot be read by this version: %w", o.Name, err))
		}
		if own := r.set.Setting(o.Name); differs(own, set.Setting(o.Name), options.Source(o.Source)) {
			r.Differing = append(r.Differing, fmt.Sprintf("--%s is %q here (%s), and the sidecar runs with %q (%s)", o.Name, own.Value, own.Source, o.Value, o.Source))
		}
	}
	resolved, err := theirs.Complete()
	if err != nil {
		return r.config, r.invalid(err)
	}
	r.FromSidecar = true
	return &sidecar.Config{Sidecar: resolved}, r.Options
}

func (r doctorConfig) invalid(err error) doctor.Options {
	r.Invalid = append(r.Invalid, err)
	return r.Options
}

// differs reports whether doctor has another value than the sidecar, from a source that would take
// precedence for the sidecar, too. An option that a flag of the sidecar overrides is not a
// difference, nor is a default.
func differs(own, theirs options.Setting, from options.Source) bool {
	return own.Source != "" && own.Source != options.FromDefault && own.Source.Before(from) && own.Value != theirs.Value
}

// split returns the errors that errors.Join has joined.
func split(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, split(e)...)
	}
	return all
}
