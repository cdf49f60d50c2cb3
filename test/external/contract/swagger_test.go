package contract

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-openapi/loads"
	"github.com/go-openapi/spec"
	"github.com/go-openapi/strfmt"
	"github.com/go-openapi/validate"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// swagger is swagger.yaml with all references resolved.
type swagger struct {
	basePath   string
	operations map[string]*spec.Operation // by "POST /ipam/{ip}"
	// other is the error that each operation can have besides its own, and every other request.
	other spec.Response
}

// call is a request by its operation and parameters.
type call struct {
	// operation is a key of swagger.operations.
	operation string
	// path, query and header are the values of the parameters, by name.
	path, query, header map[string]string
	// body is the JSON body; empty for none.
	body string
}

func loadSwagger(t *testing.T, file string) swagger {
	t.Helper()
	loaded, err := loads.Spec(file)
	check.Must(t, err)
	expanded, err := loaded.Expanded()
	check.Must(t, err)
	d := swagger{basePath: expanded.BasePath(), operations: map[string]*spec.Operation{}, other: expanded.Spec().Responses["other-error"]}
	for path, item := range expanded.Spec().Paths.Paths {
		for method, op := range map[string]*spec.Operation{
			http.MethodGet: item.Get, http.MethodPost: item.Post, http.MethodPut: item.Put,
			http.MethodPatch: item.Patch, http.MethodDelete: item.Delete,
		} {
			if op != nil {
				d.operations[method+" "+path] = op
			}
		}
	}
	return d
}

// codes returns each operation with each of its codes, such as "POST /ipam 201".
func (d swagger) codes() []string {
	var all []string
	for name, op := range d.operations {
		for code := range op.Responses.StatusCodeResponses {
			all = append(all, fmt.Sprintf("%s %d", name, code))
		}
	}
	return slices.Sorted(slices.Values(all))
}

// send sends a call and returns the response.
func (d swagger) send(t *testing.T, c harness.Client, r call) harness.Response {
	t.Helper()
	method, path, _ := strings.Cut(r.operation, " ")
	for name, value := range r.path {
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(value))
	}
	query := url.Values{}
	for name, value := range r.query {
		query.Set(name, value)
	}
	var header []string
	for name, value := range r.header {
		header = append(header, name, value)
	}
	if r.body == "" {
		return c.Do(t, method, d.basePath+path+"?"+query.Encode(), header...)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+d.basePath+path, strings.NewReader(r.body))
	check.Must(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := c.Send(request)
	check.Must(t, err)
	return response
}

// validateCall returns an error if a parameter of the call is undocumented or invalid, or a
// required one is missing.
func (d swagger) validateCall(r call) error {
	op, ok := d.operations[r.operation]
	if !ok {
		return fmt.Errorf("no operation %q is documented", r.operation)
	}
	remaining := map[string]map[string]string{
		"path": maps.Clone(r.path), "query": maps.Clone(r.query), "header": maps.Clone(r.header),
	}
	for _, p := range op.Parameters {
		if p.In == "body" {
			if err := validateBody(p.Schema, r.body); err != nil {
				return fmt.Errorf("body %s: %w", p.Name, err)
			}
			continue
		}
		value, given := remaining[p.In][p.Name]
		delete(remaining[p.In], p.Name)
		if !given {
			if p.Required {
				return fmt.Errorf("the required parameter %s is missing", p.Name)
			}
			continue
		}
		if err := validateParameter(p, value); err != nil {
			return err
		}
	}
	for in, names := range remaining {
		for name := range names {
			return fmt.Errorf("the %s parameter %s is not documented", in, name)
		}
	}
	return nil
}

func validateBody(s *spec.Schema, text string) error {
	var body any
	if err := json.Unmarshal([]byte(text), &body); err != nil {
		return err
	}
	return validate.AgainstSchema(strict(s), body, strfmt.Default)
}

func validateParameter(p spec.Parameter, value string) error {
	var typed any = value
	if p.Type == "boolean" {
		b, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("parameter %s: %w", p.Name, err)
		}
		typed = b
	}
	return validate.NewParamValidator(&p, strfmt.Default).Validate(typed).AsError()
}

// otherCodes returns the codes that each operation can have besides its own.
func (d swagger) otherCodes() []string {
	codes, _ := d.other.Extensions.GetStringSlice(addition + "-codes")
	return codes
}

// response returns what is documented for a code of an operation; false if that is nothing. The operation is
// empty for a request of none.
func (d swagger) response(operation string, code int) (spec.Response, bool) {
	documented := slices.Contains(d.otherCodes(), strconv.Itoa(code))
	if op := d.operations[operation]; op == nil {
		documented = documented || code == http.StatusNotFound || code == http.StatusMethodNotAllowed
	} else if own, ok := op.Responses.StatusCodeResponses[code]; ok {
		return own, true
	}
	return d.other, documented
}

// validateResponse returns an error if the status, a header or the body of a response, down to each
// key, is undocumented.
func (d swagger) validateResponse(operation string, a harness.Response) error {
	response, ok := d.response(operation, a.Status)
	if !ok {
		return fmt.Errorf("status %d is not documented", a.Status)
	}
	for name, header := range response.Headers {
		if value := a.Header.Get(name); value != "" {
			if err := validate.NewHeaderValidator(name, &header, strfmt.Default).Validate(value).AsError(); err != nil {
				return err
			}
		}
	}
	if response.Schema == nil {
		if len(a.Body) != 0 {
			return fmt.Errorf("the body %q is not documented", a.Body)
		}
		return nil
	}
	if got := a.Header.Get("Content-Type"); got != "application/json" {
		return fmt.Errorf("the content type is %q; want application/json", got)
	}
	var body any
	if err := json.Unmarshal(a.Body, &body); err != nil {
		return fmt.Errorf("the body %q: %w", a.Body, err)
	}
	return validate.AgainstSchema(strict(response.Schema), body, strfmt.Default)
}

// strict returns a schema that allows documented keys only.
func strict(s *spec.Schema) *spec.Schema {
	c := *s
	if len(s.Properties) > 0 {
		c.Properties = spec.SchemaProperties{}
		for name, property := range s.Properties {
			c.Properties[name] = *strict(&property)
		}
		if s.AdditionalProperties == nil {
			c.AdditionalProperties = &spec.SchemaOrBool{Allows: false}
		}
	}
	if s.Items != nil && s.Items.Schema != nil {
		c.Items = &spec.SchemaOrArray{Schema: strict(s.Items.Schema)}
	}
	return &c
}

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
		"error of the wrong form":       {d.validateResponse("GET /ipam", response(406, `{"code":406,"message":"x"}`)), "string"},
		"404 of an operation":           {d.validateResponse("GET /ipam", response(404, `"x"`)), "404"},
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

// extension marks operations, definitions and properties that Cilium's API lacks.
const extension = "x-delegated-ipam-extension"

// addition marks rules and bodies that we add to Cilium's operations.
const addition = "x-delegated-ipam"

// The parts of swagger.yaml without the mark must be the same in Cilium's document: paths,
// parameters, codes, Go names of the codes, JSON keys and their types.
func TestCiliumSubset(t *testing.T) {
	t.Parallel()
	ours, theirs := loadSwagger(t, swaggerFile), loadSwagger(t, ciliumSwagger(t))
	if ours.basePath != theirs.basePath {
		t.Errorf("our base path is %s, Cilium's %s", ours.basePath, theirs.basePath)
	}
	compared := 0
	for name, op := range ours.operations {
		if op.Extensions[extension] == true {
			continue
		}
		compared++
		t.Run(name, func(t *testing.T) {
			want, ok := theirs.operations[name]
			if !ok {
				t.Fatal("Cilium lacks this operation, and it is not marked as an extension")
			}
			compareOperations(t, op, want)
		})
	}
	if compared == 0 {
		t.Error("no operation was compared")
	}
}

func compareOperations(t *testing.T, our, their *spec.Operation) {
	t.Helper()
	if !slices.Equal(our.Tags, their.Tags) {
		t.Errorf("the tags are %q; Cilium's are %q", our.Tags, their.Tags)
	}
	if got, want := parameters(our), parameters(their); !slices.Equal(got, want) {
		t.Errorf("the parameters are %q; Cilium's are %q", got, want)
	}
	if got, want := responses(our), responses(their); !slices.Equal(got, want) {
		t.Errorf("the codes are %q; Cilium's are %q", got, want)
	}
	if other := our.Responses.Default; other == nil || other.Extensions[addition] == nil || their.Responses.Default != nil {
		t.Errorf("the default responses are %v and Cilium's %v; want ours only, marked as an addition", other, their.Responses.Default)
	}
	for code, response := range our.Responses.StatusCodeResponses {
		theirs := their.Responses.StatusCodeResponses[code]
		if _, added := response.Extensions[addition]; added && theirs.Schema == nil {
			continue
		}
		if (response.Schema == nil) != (theirs.Schema == nil) {
			t.Errorf("only one of both has a body with %d", code)
		} else if response.Schema != nil {
			compareSchemas(t, fmt.Sprint(code), response.Schema, theirs.Schema)
		}
	}
}

// compareSchemas fails the test for each of our keys that Cilium lacks, or has with another type.
func compareSchemas(t *testing.T, where string, our, their *spec.Schema) {
	t.Helper()
	if got, want := typeOf(our), typeOf(their); got != want {
		t.Errorf("%s is of type %q; Cilium's is %q", where, got, want)
	}
	if !slices.Equal(our.Required, their.Required) {
		t.Errorf("%s requires %q; Cilium's %q", where, our.Required, their.Required)
	}
	for name, property := range our.Properties {
		if property.Extensions[extension] == true {
			continue
		}
		theirs, ok := their.Properties[name]
		if !ok {
			t.Errorf("Cilium lacks the key %s.%s, and it is not marked as an extension", where, name)
			continue
		}
		compareSchemas(t, where+"."+name, &property, &theirs)
	}
	if our.Items != nil && their.Items != nil {
		compareSchemas(t, where+"[]", our.Items.Schema, their.Items.Schema)
	}
}

// typeOf returns the type of a schema; one with properties is an object, also if it has no type.
func typeOf(s *spec.Schema) string {
	if len(s.Type) == 0 && len(s.Properties) > 0 {
		return "object"
	}
	return strings.Join(s.Type, ",")
}

func parameters(op *spec.Operation) []string {
	var all []string
	for _, p := range op.Parameters {
		if p.Extensions[extension] == true {
			continue
		}
		all = append(all, fmt.Sprintf("%s %s %s %v required=%t", p.In, p.Name, p.Type, p.Enum, p.Required))
	}
	return slices.Sorted(slices.Values(all))
}

func responses(op *spec.Operation) []string {
	var all []string
	for code, r := range op.Responses.StatusCodeResponses {
		all = append(all, fmt.Sprint(code, " ", r.Extensions["x-go-name"]))
	}
	return slices.Sorted(slices.Values(all))
}

// ciliumSwagger returns the path of Cilium's document in the pinned module.
func ciliumSwagger(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/cilium/cilium").Output()
	check.Must(t, err)
	return filepath.Join(strings.TrimSpace(string(out)), "api", "v1", "openapi.yaml")
}
