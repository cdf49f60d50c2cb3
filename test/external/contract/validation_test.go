package contract

import (
	"net/http"
	"strings"
	"testing"

	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// The validation functions must fail for undocumented requests and responses.
func TestValidation(t *testing.T) {
	d := loadSwagger(t, swaggerFile)
	response := func(status int, body string) harness.Response {
		return harness.Response{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}
	}
	tests := map[string]struct {
		err  error
		want string
	}{
		"unknown operation":             {d.validateCall(call{operation: "GET /none"}), "GET /none"},
		"unknown parameter":             {d.validateCall(call{operation: "POST /ipam", query: map[string]string{"colour": "red"}}), "colour"},
		"value outside the enumeration": {d.validateCall(call{operation: "POST /ipam", query: map[string]string{"family": "ipx"}}), "family"},
		"missing path parameter":        {d.validateCall(call{operation: "DELETE /ipam/{ip}"}), "ip"},
		"invalid boolean":               {d.validateCall(call{operation: "POST /ipam", header: map[string]string{"expiration": "perhaps"}}), "expiration"},
		"unknown status":                {d.validateResponse("POST /ipam", response(418, "")), "418"},
		"missing required key":          {d.validateResponse("POST /ipam", response(201, `{"address":{}}`)), "host-addressing"},
		"unknown key":                   {d.validateResponse("POST /ipam", response(201, `{"address":{"ipv5":"1"},"host-addressing":{}}`)), "ipv5"},
		"body of the wrong type":        {d.validateResponse("POST /ipam", response(502, `{}`)), "string"},
		"undocumented body":             {d.validateResponse("DELETE /ipam/{ip}", response(200, `"x"`)), "not documented"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) {
				t.Errorf("got %v; want an error with %q", tt.err, tt.want)
			}
		})
	}
}
