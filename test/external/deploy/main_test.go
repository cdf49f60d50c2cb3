// Package deploy renders what deploy/ has for Kubernetes, with Cilium's real chart
// and kustomize, and holds it to what sidecar and bridge need. It is a module of
// its own, so that the product depends on neither helm nor Cilium.
package deploy

import (
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
