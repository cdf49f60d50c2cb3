// Package inventory lists the CiliumNodes, Nodes and bridge pods of a cluster, page by page.
package inventory

import (
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// requestLimit is the time limit of one page.
	requestLimit = time.Minute
	// Requests per second, and in a burst: more than pages can be read, and little load for the
	// API server.
	requestRate, requestBurst = 20, 40
)

// Config returns the configuration of the Kubernetes client by the rules of kubectl: the file
// kubeconfig, else those that $KUBECONFIG lists, else ~/.kube/config, else the service account of
// the pod. The error says which one cannot be used. userAgent names the program.
func Config(kubeconfig, userAgent string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, fmt.Errorf("no kubeconfig was found, and this is not a pod with a service account; expected a file, by --kubeconfig, $KUBECONFIG or in %s", clientcmd.RecommendedHomeFile)
	case err != nil && kubeconfig != "":
		return nil, fmt.Errorf("--kubeconfig is %q: %w", kubeconfig, err)
	case err != nil:
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	c.QPS, c.Burst, c.UserAgent, c.Timeout = requestRate, requestBurst, userAgent, requestLimit
	return c, nil
}
