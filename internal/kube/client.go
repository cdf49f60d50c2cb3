// Package kube configures clients of the Kubernetes API server.
package kube

import (
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// RequestLimit is the time limit of one request of a component, except for a watch.
const RequestLimit = 30 * time.Second

const (
	// Requests to the API server per second, and in a burst: several times what one release of an address
	// or the pages of a list need, and little load for a server that many nodes share.
	requestRate, requestBurst = 20, 40
	// commandLimit is the time limit of one request of a command, such as a page of a list.
	commandLimit = time.Minute
)

// Config returns the configuration of a client of a component: from the file kubeconfig or, if that is
// empty, of the service account of the pod. userAgent names the component. The error names what is
// missing.
func Config(kubeconfig, userAgent string) (*rest.Config, error) {
	var c *rest.Config
	var err error
	if kubeconfig == "" {
		if c, err = rest.InClusterConfig(); err != nil {
			return nil, fmt.Errorf("%w; outside a pod, name a file with --kubeconfig", err)
		}
	} else if c, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	c.QPS, c.Burst, c.UserAgent = requestRate, requestBurst, userAgent
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return ownMoments{next} })
	return c, nil
}

// ownMoments makes client-go return the error of a watch, which Watch repeats at the node's own moment. An
// API server that has just started tells all nodes to come back after one second.
type ownMoments struct{ http.RoundTripper }

func (o ownMoments) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := o.RoundTripper.RoundTrip(r)
	if err == nil && r.URL.Query().Has("watch") {
		response.Header.Del("Retry-After")
	}
	return response, err
}

// CommandConfig returns the configuration of a client of a command, by the rules of kubectl: the file
// kubeconfig, otherwise those that $KUBECONFIG lists, otherwise ~/.kube/config, otherwise the service
// account of the pod. userAgent names the program. A request ends after a minute, so it is not for
// watches. The error names the file that cannot be used.
func CommandConfig(kubeconfig, userAgent string) (*rest.Config, error) {
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
	c.QPS, c.Burst, c.UserAgent, c.Timeout = requestRate, requestBurst, userAgent, commandLimit
	return c, nil
}

// Protobuf returns a copy of a configuration for objects of Kubernetes itself: in protobuf a Node with
// its images or a list of pods takes less to decode. The API server may respond in JSON.
func Protobuf(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.ContentType = runtime.ContentTypeProtobuf
	c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return c
}

// RetryInterval is the time between two requests of a node while the API server is unavailable: of 100 nodes
// it receives 10 in a second.
const RetryInterval = 10 * time.Second

// maxBackoff is the least of the longest delays after a failure.
const maxBackoff = 7 * time.Second

// Offset returns a time within RetryInterval for a node, at which it repeats failed requests: nodes do not
// do it simultaneously. Those whose names differ only in the number at their end have equal distances
// (multiples of the golden ratio), others random ones.
func Offset(node string) time.Duration {
	prefix := strings.TrimRight(node, "0123456789")
	h := fnv.New32a()
	_, _ = h.Write([]byte(prefix)) // never fails
	number, _ := strconv.ParseUint(node[len(prefix):], 10, 32)
	_, fraction := math.Modf(float64(h.Sum32())/(1<<32) + float64(number)*math.Phi)
	return time.Duration(fraction * float64(RetryInterval))
}

// Backoff returns the delays after failures in a row: random, so that nodes do not retry simultaneously,
// and growing to between maxBackoff and twice that.
func Backoff() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 10, Cap: maxBackoff}
}
