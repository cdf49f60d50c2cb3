package contract

import (
	"net/http"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// The validators are only worth something if they can say no.
func TestTheValidatorsRefuseWhatIsNotDocumented(t *testing.T) {
	d := loadDocument(t, swaggerFile)
	answer := func(status int, body string) harness.Response {
		return harness.Response{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}
	}
	tests := map[string]struct {
		err  error
		want string
	}{
		"an operation that does not exist": {d.validateCall(call{operation: "GET /none"}), "GET /none"},
		"a parameter that does not exist":  {d.validateCall(call{operation: "POST /ipam", query: map[string]string{"colour": "red"}}), "colour"},
		"a value outside the enumeration":  {d.validateCall(call{operation: "POST /ipam", query: map[string]string{"family": "ipx"}}), "family"},
		"a missing path parameter":         {d.validateCall(call{operation: "DELETE /ipam/{ip}"}), "ip"},
		"a boolean that is none":           {d.validateCall(call{operation: "POST /ipam", header: map[string]string{"expiration": "perhaps"}}), "expiration"},
		"a status that does not exist":     {d.validateAnswer("POST /ipam", answer(418, "")), "418"},
		"a required key that is missing":   {d.validateAnswer("POST /ipam", answer(201, `{"address":{}}`)), "host-addressing"},
		"a key that does not exist":        {d.validateAnswer("POST /ipam", answer(201, `{"address":{"ipv5":"1"},"host-addressing":{}}`)), "ipv5"},
		"a body of the wrong type":         {d.validateAnswer("POST /ipam", answer(502, `{}`)), "string"},
		"a body where there is none":       {d.validateAnswer("DELETE /ipam/{ip}", answer(404, `"x"`)), "not documented"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) {
				t.Errorf("got %v; want an error that says %q", tt.err, tt.want)
			}
		})
	}
}
