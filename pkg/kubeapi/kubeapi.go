// Package kubeapi configures clients of the Kubernetes API server.
package kubeapi

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Requests to the API server per second, and in a burst: several times what one release needs, and
// little load for a server that many nodes share.
const (
	requestRate  = 20
	requestBurst = 40
)

// Config returns the configuration of a client: from the file kubeconfig or, if that is empty, of the
// pod. component is the user agent. The error names what is missing.
func Config(kubeconfig, component string) (*rest.Config, error) {
	c, err := credentials(kubeconfig)
	if err != nil {
		return nil, err
	}
	c.QPS, c.Burst, c.UserAgent = requestRate, requestBurst, component
	return c, nil
}

func credentials(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		c, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("%w; outside a pod, name a file with --kubeconfig", err)
		}
		return c, nil
	}
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return c, nil
}
