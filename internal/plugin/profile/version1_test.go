package profile

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestVersion1(t *testing.T) {
	const remote = `"type":"remote","addOutlivesSeconds":60`
	queued := Profile{Type: "remote", AddOutlivesSeconds: 60, DelOutlivesSeconds: 60, Del: DelQueued, Store: StoreRemote, Unique: true}
	released := queued
	released.Del = DelReleased
	for name, c := range map[string]struct {
		keys string
		want Profile
	}{
		"queued DEL by its first name":   {remote + `,"lateDel":true`, queued},
		"queued DEL":                     {remote + `,"del":"queued","addAfterDelSeconds":2,"unique":true`, queued},
		"released DEL by its first name": {remote + `,"lateDel":false`, released},
		"store on the node":              {`"type":"host-local"`, Profile{Type: "host-local", Del: DelReleased, Store: StoreNode, Unique: true}},
		"every fact": {
			remote + `,"delOutlivesSeconds":0,"del":"unproved","store":"node","lookup":"host-local-leases","unique":false`,
			Profile{Type: "remote", AddOutlivesSeconds: 60, Del: DelUnproved, Store: StoreNode, Lookup: LookupHostLocal},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got Version1
			if err := json.Unmarshal([]byte("{"+c.keys+"}"), &got); err != nil || !reflect.DeepEqual(Profile(got), c.want) {
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
	if err := json.Unmarshal([]byte(`{"type":1}`), new(Version1)); err == nil || !strings.Contains(err.Error(), "type") {
		t.Errorf("error %v; want one that names the key", err)
	}
}
