package kubeapi

import (
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// RetryBackoff returns the delays after failed reconciliations: from 1 s to 30 s, each extended by
// up to half so that nodes do not retry simultaneously.
func RetryBackoff() *wait.Backoff {
	return &wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.5, Steps: 10, Cap: 30 * time.Second}
}
