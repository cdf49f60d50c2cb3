package profile

import (
	"errors"
	"strings"
)

// CheckType returns an error if a text cannot be a plugin type: the file name of the plugin's
// executable (CNI spec section 1, "type"), which must not lead out of the plugin directories. The error
// says what was expected.
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
