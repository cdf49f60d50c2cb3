package main

// quirks are deviations from the correct behaviour, which is the default of each.
type quirks struct {
	// RepeatedAdd is "refused" (default), "same" or "another".
	RepeatedAdd string `json:"repeatedAdd"`
	// Check is "presence" (default), "always-yes" or "always-no".
	Check string `json:"check"`
	// KeyedBy identifies a holder: "interface" (container ID and interface, default), "id",
	// "network" (network and container ID) or "pod" (pod and interface; an ADD without a pod is
	// refused, and its DEL frees nothing).
	KeyedBy string `json:"keyedBy"`
	// WantsPod refuses an ADD without a pod.
	WantsPod bool `json:"wantsPod"`
	// Versions are the supported CNI versions; all if empty.
	Versions []string `json:"versions"`
	// Del is "frees" (default), "nothing", or "queued": while the file daemon-down exists, DEL
	// succeeds, frees nothing, and is executed after the next ADD without that file.
	Del string `json:"del"`
	// GC is "frees" (default), or "nothing": GC succeeds and frees nothing.
	GC string `json:"gc"`
	// Requests are the conventions that are read: "runtimeConfig.ips",
	// "args.cni.ips" and "CNI_ARGS"; all if there are none.
	Requests []string `json:"requests"`
	// Requested is "reserved" (default), or "extra": the requested address is returned besides the
	// allocated ones, without being reserved.
	Requested string `json:"requested"`
	// Cooldown refuses a released address in every later ADD, as calico's
	// IPAMConfig.ipCooldownSeconds does for a time.
	Cooldown bool `json:"cooldown"`
	// LateSeconds is how long the server keeps a late call; 0 is forever.
	LateSeconds int `json:"lateSeconds"`
}

// quirksOf returns the quirks of a plugin type that cannot run in a test. Keys of the ipam section
// override them.
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
