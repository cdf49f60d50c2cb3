package options

import "github.com/spf13/pflag"

// Reread resolves fresh, an unresolved set of the same options, with the flags of s, the
// environment and the files that are in --config-dir now, and returns its settings, sorted by name.
// s stays as it is. The error is as that of Resolve.
func (s *Set) Reread(fresh *Set, env map[string]string) ([]Setting, error) {
	var err error
	s.flags.VisitAll(func(f *pflag.Flag) {
		if s.sources[f.Name] == FromFlag && err == nil {
			_, err = fresh.Set(f.Name, f.Value.String())
		}
	})
	if err == nil {
		err = fresh.Resolve(env)
	}
	if err != nil {
		return nil, err
	}
	return fresh.Settings(), nil
}

// OnReload returns the effect of SIGHUP on an option of s.
func (s *Set) OnReload(name string) OnReload {
	if effects := s.flags.Lookup(name).Annotations[ReloadAnnotation]; len(effects) > 0 {
		return OnReload(effects[0])
	}
	return Restart
}
