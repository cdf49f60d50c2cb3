package cluster

// ServiceAddress is the address of the service "kubernetes", the first of the services' range.
const ServiceAddress = "10.96.0.1"

// Controllers describes the programs that a cluster with nodes needs in addition.
type Controllers struct {
	// ControllerManager and Scheduler are the paths of the programs.
	ControllerManager, Scheduler string
	// PodCIDRs are the ranges, separated by commas, of which each node gets a part as its podCIDRs:
	// a /24 of IPv4, a /64 of IPv6.
	PodCIDRs string
	// Nodes are the names of the nodes that have a token for their kubelet, which is the name.
	Nodes []string
}

// addresses returns the addresses of the API server.
func (config Config) addresses() []string { return []string{config.Host, ServiceAddress} }

// admission returns the flags of the API server for admission plugins. The one for service accounts
// refuses all pods if no controller creates the accounts.
func (config Config) admission() []string {
	if config.Controllers == nil {
		return []string{"--disable-admission-plugins=ServiceAccount"}
	}
	return []string{"--enable-admission-plugins=NodeRestriction", "--kubelet-preferred-address-types=InternalIP"}
}

// commands returns the command of each program by its name.
func (c *Controllers) commands(kubeconfig string, files certificates) map[string][]string {
	return map[string][]string{
		"kube-controller-manager": {
			c.ControllerManager,
			"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--bind-address=127.0.0.1",
			"--service-account-private-key-file=" + files.accountKey, "--root-ca-file=" + files.serving,
			"--allocate-node-cidrs=true", "--cluster-cidr=" + c.PodCIDRs,
		},
		"kube-scheduler": {
			c.Scheduler,
			"--kubeconfig=" + kubeconfig, "--leader-elect=false", "--bind-address=127.0.0.1",
		},
	}
}
