package cniplugin

import (
	"regexp"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// countedAsSuccess are the texts with which containerd's client takes the error of a DEL for success
// (go-cni v1.1.14, Remove): the first one always, the second one for a sandbox without a network
// namespace. The address would stay allocated. Their case is ignored for other clients like it.
const countedAsSuccess = `(?i)not found|no such file or directory`

// delError returns the error of a DEL with these texts replaced by others of the same meaning. err may
// have texts of the daemon, the delegated plugin and the kernel.
func delError(err *types.Error) *types.Error {
	pattern := regexp.MustCompile(countedAsSuccess) // not at the start of each call
	reword := func(text string) string {
		return pattern.ReplaceAllStringFunc(text, func(found string) string {
			if strings.HasSuffix(strings.ToLower(found), "directory") {
				return "file is missing"
			}
			return "missing"
		})
	}
	return types.NewError(err.Code, reword(err.Msg), reword(err.Details))
}
