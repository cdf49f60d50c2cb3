package client

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/api/models"
)

// The types are written by hand, so that the package needs no other module; swagger.yaml is the
// contract. Every key of the generated models must be decoded, but for those named here.
func TestKeys(t *testing.T) {
	for name, tt := range map[string]struct {
		decoded, model any
		ignored        []string
	}{
		"Attachment":        {Attachment{}, models.Attachment{}, nil},
		"Address":           {Address{}, models.AttachmentAddress{}, nil},
		"Leftover":          {Leftover{}, models.Leftover{}, nil},
		"Expiration":        {Expiration{}, models.AttachmentExpiration{}, nil},
		"Status":            {Status{}, models.DelegatedIPAMStatus{}, nil},
		"PoolStatus":        {PoolStatus{}, models.PoolStatus{}, nil},
		"Verification":      {Verification{}, models.PoolVerification{}, nil},
		"PendingRelease":    {PendingRelease{}, models.PendingRelease{}, nil},
		"LastError":         {LastError{}, models.LastError{}, nil},
		"MovedPlugin":       {MovedPlugin{}, models.MovedPlugin{}, nil},
		"QuarantinedRecord": {QuarantinedRecord{}, models.QuarantinedRecord{}, nil},
		"OptionValue":       {OptionValue{}, models.OptionValue{}, nil},
		"Allocation":        {wireAllocation{}, models.IPAMResponse{}, nil},
		// The same UUID is in each family's part.
		"AddressPair": {wireAllocation{}.Address, models.AddressPair{}, []string{"ipv4-expiration-uuid", "ipv6-expiration-uuid"}},
		// The IP is in the pair. The sidecar never sends skip-masquerade.
		"AllocatedAddress": {wireAddress{}, models.IPAMAddressResponse{}, []string{"ip", "skip-masquerade"}},
		"Families":         {wireAllocation{}.HostAddressing, models.NodeAddressing{}, nil},
		// The sidecar never sends address-type.
		"HostAddressing": {wireHostAddressing{}, models.NodeAddressingElement{}, []string{"address-type"}},
	} {
		t.Run(name, func(t *testing.T) {
			want := keys(tt.model)
			for _, k := range tt.ignored {
				if !want[k] {
					t.Errorf("%q is ignored, and the model does not have it", k)
				}
				delete(want, k)
			}
			if got := keys(tt.decoded); !maps.Equal(got, want) {
				t.Errorf("decodes %q; the model has %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
			}
		})
	}
	t.Run("states", func(t *testing.T) {
		ours := []string{string(StateAdding), string(StateHeld), string(StateCooldown), string(StateReleasing)}
		theirs := []string{models.AttachmentStateAdding, models.AttachmentStateHeld, models.AttachmentStateCooldown, models.AttachmentStateReleasing}
		if !slices.Equal(ours, theirs) {
			t.Errorf("has the states %v; the model has %v", ours, theirs)
		}
	})
}

// keys returns the JSON keys of a struct.
func keys(v any) map[string]bool {
	out := map[string]bool{}
	of := reflect.TypeOf(v)
	for i := range of.NumField() {
		if name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ","); name != "-" {
			out[name] = true
		}
	}
	return out
}
