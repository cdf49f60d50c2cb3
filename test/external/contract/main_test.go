// Package contract tests the sidecar through its socket: against swagger.yaml, with Cilium's
// client, and with the curl lines of the documentation.
package contract

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
