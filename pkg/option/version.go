package option

import "runtime/debug"

// Version is the version that the build was given, else what Go wrote
// into the binary: the module's version or the commit.
func Version(given string) string {
	if given != "" {
		return given
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return buildVersion(info)
}

// buildVersion is the version in build information: that of the module if it was
// installed as one, else the commit, else "unknown".
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
