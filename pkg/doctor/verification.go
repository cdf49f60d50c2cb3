package doctor

import (
	"fmt"

	"github.com/delegated-ipam/delegated-ipam/api/models"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate"
	"github.com/delegated-ipam/delegated-ipam/pkg/delegate/profile"
)

// verification reports for each pool how its held attachments are verified.
func (s Sight) verification() []Finding {
	var all []Finding
	for _, p := range s.Status.Pools {
		if p.Verification != nil {
			all = append(all, verificationOf(p))
		}
	}
	return all
}

func verificationOf(p *models.PoolStatus) Finding {
	f := Finding{Check: CheckVerification, Pool: p.Pool, State: OK, Seen: "by " + p.Verification.By}
	if p.Verification.Reason != "" {
		f.Seen += ": " + p.Verification.Reason
	}
	lookup := profile.Lookup(fact(p, "lookup"))
	if p.Verification.By != delegate.VerifyByLookup && lookup != "" && lookup != profile.LookupNone {
		f.State = Warning
		f.Do = "let ipam.dataDir name the folder in which the plugin keeps its addresses and restart the sidecar, or give it a --plugin-profile whose lookup is none; until then each verification runs the plugin"
	}
	return f
}

// heldPlugins reports whether what is held can be verified and released.
func (s Sight) heldPlugins() []Finding {
	var all []Finding
	for _, p := range s.Status.MovedPlugins {
		f := Finding{Check: CheckHeldPlugins, Pool: p.Pool, State: OK, Seen: fmt.Sprintf("%s does not exist any more; %s is used instead", p.Binary, p.Executable)}
		if p.Error != "" {
			f.State, f.Seen = Error, p.Error
			f.Do = "install the plugin again, or name its folder with --cni-bin-dir; until then no attachment that it made is verified or released"
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		all = []Finding{{Check: CheckHeldPlugins, State: OK, Seen: "the executables of all recorded attachments exist"}}
	}
	return all
}
