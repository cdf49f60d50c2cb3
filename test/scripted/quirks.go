package main

// quirks are how a plugin differs from the correct one. An empty quirk is the
// correct behaviour.
type quirks struct {
	// RepeatedAdd is "refused" (default), "same" or "another".
	RepeatedAdd string `json:"repeatedAdd"`
	// Check is "presence" (default), "always-yes" or "always-no".
	Check string `json:"check"`
	// KeyedBy is what two calls must have in common to mean one holder:
	// "interface" (container ID and interface, default), "id", "network" (network
	// and container ID) or "pod" (pod and interface; a call without a pod is
	// refused, and its DEL frees nothing).
	KeyedBy string `json:"keyedBy"`
	// WantsPod refuses an ADD without a pod's namespace and name.
	WantsPod bool `json:"wantsPod"`
	// Versions are the supported CNI versions; all if empty.
	Versions []string `json:"versions"`
	// Del is "frees" (default), "nothing", or "queued": while the file
	// daemon-down is in the script directory, DEL succeeds, frees nothing and is
	// carried out behind the next ADD without that file.
	Del string `json:"del"`
	// GC is "frees" (default), or "nothing": GC succeeds and frees nothing.
	GC string `json:"gc"`
	// Requests are the conventions that are read: "runtimeConfig.ips",
	// "args.cni.ips" and "CNI_ARGS"; all if there are none.
	Requests []string `json:"requests"`
	// Requested is "reserved" (default), or "extra": the address asked for is
	// answered besides the allocated ones, and reserved for nobody.
	Requested string `json:"requested"`
	// Cooldown refuses a released address in each later ADD, also where it is requested,
	// as calico's IPAMConfig.ipCooldownSeconds does for a time.
	Cooldown bool `json:"cooldown"`
	// LateSeconds is how long the server keeps a late call; for ever if it is 0.
	LateSeconds int `json:"lateSeconds"`
}

// quirksOf imitates the plugins that cannot be run in a test, by the name under
// which the plugin was called. Keys of the ipam section replace each.
func quirksOf(pluginType string) quirks {
	// Up to 1.0.0: neither GC nor STATUS.
	before := []string{"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0"}
	switch pluginType {
	case "whereabouts":
		return quirks{
			RepeatedAdd: "same", Check: "always-no", KeyedBy: "pod", GC: "nothing", Requests: []string{"CNI_ARGS"}, Requested: "extra",
		}
	case "calico-ipam":
		return quirks{RepeatedAdd: "another", Check: "always-yes", KeyedBy: "network", Requests: []string{"CNI_ARGS"}, Versions: before}
	case "azure-ipam":
		return quirks{
			RepeatedAdd: "same", Check: "always-yes", KeyedBy: "id", WantsPod: true, Del: "queued", Requests: []string{"none"}, Versions: before,
		}
	case "cni-ipvlan-vpc-k8s-ipam":
		return quirks{RepeatedAdd: "another", Check: "always-yes", Del: "nothing", Requests: []string{"none"}}
	default:
		return quirks{}
	}
}
