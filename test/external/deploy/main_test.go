// Package deploy renders the manifests of deploy/ with Cilium's real chart and kustomize, and
// compares them with the requirements of daemon and bridge. It is a module of
// its own, so that the product depends on neither helm nor Cilium.
package deploy

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
