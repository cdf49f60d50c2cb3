package cli

import (
	"slices"

	"github.com/sirupsen/logrus"

	"github.com/delegated-ipam/delegated-ipam/internal/options"
	"github.com/delegated-ipam/delegated-ipam/internal/sidecar"
)

// reloader reads the options of a running sidecar again.
type reloader struct {
	env map[string]string
	set *options.Set
	log *logrus.Logger
	// running are the options of the running sidecar.
	running []options.Setting
}

// reread applies the options that can change while the sidecar runs, logs which others need a
// restart, and returns the present ones. After an error the old ones stay.
func (r *reloader) reread() []options.Setting {
	sidecar, set := options.NewSidecar(r.env)
	now, err := r.set.Reread(set, r.env)
	if err == nil {
		err = valid(*sidecar)
	}
	if err != nil {
		for _, e := range split(err) {
			r.log.WithError(e).Error("SIGHUP: the options are invalid; the sidecar keeps its options")
		}
		return slices.Clone(r.running)
	}
	logSkipped(r.log, set)
	for i, s := range now {
		old := r.running[i] // both are sorted by name
		log := r.log.WithFields(logrus.Fields{"option": s.Name, "running": old.Value, "configured": s.Value})
		switch {
		case s == old:
		case s.Value == old.Value: // from another source
			r.running[i] = s
		case s.Name == logLevel:
			level, err := logrus.ParseLevel(s.Value)
			if err != nil {
				log.WithError(err).Error("SIGHUP: the option cannot be applied")
				continue
			}
			r.log.SetLevel(level)
			r.running[i] = s
			log.Info("SIGHUP: the option has changed and is applied")
		default:
			log.Warn("SIGHUP: the option has changed; restart the sidecar to apply it")
		}
	}
	return slices.Clone(r.running)
}

// logLevel is the option that reread applies.
const logLevel = "log-level"

// valid returns why a sidecar would not start with options.
func valid(o options.Sidecar) error {
	resolved, err := o.Complete()
	if err != nil {
		return err
	}
	return sidecar.Config{Sidecar: resolved}.Validate()
}
