package command

import "runtime/debug"

// Version returns the version of the build if there is one, else the one that Go wrote into the
// binary: that of the module or the commit.
func Version(build string) string {
	if build != "" {
		return build
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return buildVersion(info)
}

// buildVersion returns the version of a module that was installed as one, else the commit, else
// "unknown".
func buildVersion(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}
