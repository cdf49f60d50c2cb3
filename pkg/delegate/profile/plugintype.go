package profile

import (
	"errors"
	"strings"
)

// CheckType refuses what cannot be a plugin type: it is the file name of the
// plugin's executable (CNI spec section 1, "type"), and must not lead out of
// the plugin folders. The error says what is expected.
func CheckType(pluginType string) error {
	switch {
	case pluginType == "":
		return errors.New("expected a plugin type such as host-local")
	case strings.ContainsFunc(pluginType, func(r rune) bool { return r == '/' || r == '\\' || r < ' ' }):
		return errors.New("expected a plain file name, without a path")
	case pluginType == "." || pluginType == "..":
		return errors.New("expected the file name of a plugin")
	}
	return nil
}
