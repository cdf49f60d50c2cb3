package contract

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/cilium/api/v1/client/daemon"
	"github.com/cilium/cilium/api/v1/client/ipam"
	"github.com/go-openapi/loads"
	"github.com/go-openapi/spec"

	"github.com/delegated-ipam/delegated-ipam/internal/testing/check"
	"github.com/delegated-ipam/delegated-ipam/test/harness"
)

// Each operation has a separate ID. Cilium's document has none, so those of Cilium's operations are the
// names in Cilium's Go client: a program finds the same ones in ours.
func TestOperationIDs(t *testing.T) {
	cilium := map[string]reflect.Type{"daemon": reflect.TypeFor[daemon.ClientService](), "ipam": reflect.TypeFor[ipam.ClientService]()}
	operations := map[string]string{}
	for name, op := range loadSwagger(t, swaggerFile).operations {
		if op.ID == "" || operations[op.ID] != "" || len(op.Tags) != 1 {
			t.Errorf("%s has the operationId %q, as %q has, and the tags %q; want another one and one tag", name, op.ID, operations[op.ID], op.Tags)
			continue
		}
		operations[op.ID] = name
		if op.Extensions[extension] == true {
			continue
		}
		if _, has := cilium[op.Tags[0]].MethodByName(op.ID); !has {
			t.Errorf("%s has the operationId %s, which is not the name of an operation in Cilium's client", name, op.ID)
		}
	}
}

// Each error of swagger.yaml has the same form.
func TestErrorForm(t *testing.T) {
	d := loadSwagger(t, swaggerFile)
	for name, op := range d.operations {
		if !reflect.DeepEqual(op.Responses.Default, &d.other) {
			t.Errorf("%s: the default response is not other-error", name)
		}
		for code, response := range op.Responses.StatusCodeResponses {
			if code >= http.StatusBadRequest && !reflect.DeepEqual(response.Schema, d.other.Schema) {
				t.Errorf("%s: the body of %d is not an Error", name, code)
			}
		}
	}
}

// otherErrorCase is a request of an operation that gets an error besides the operation's own.
type otherErrorCase struct {
	start     startFunc
	operation string
	// query follows the path, and rest the Host: further headers and the body.
	query, rest string
	code        int
}

func otherErrorCases() map[string]otherErrorCase {
	header := func(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n\r\n" }
	return map[string]otherErrorCase{
		"unreadable body":    {empty, "POST /ipam", "", header("Transfer-Encoding: chunked") + "zz\r\n", 400},
		"caller not allowed": {fromOtherUser, "GET /config", "", header(), 403},
		"HTML only":          {empty, "GET /ipam", "", header("Accept: text/html"), 406},
		"large body":         {empty, "POST /cni/del", "", header("Content-Length: 2000000") + strings.Repeat("x", 2000000), 413},
		"text as body":       {empty, "POST /cni/add", "", header("Content-Type: text/plain", "Content-Length: 2") + "{}", 415},
		"unknown family":     {empty, "POST /ipam", "?family=ipx", header(), 422},
		"undecodable query":  {empty, "DELETE /ipam/{ip}", "?pool=%zz", header(), 422},
		"empty object":       {empty, "POST /cni/gc", "", header("Content-Type: application/json", "Content-Length: 2") + "{}", 422},
		"interface name":     {empty, "POST /cni/add", "", header("Content-Type: application/json", "Content-Length: 52") + `{"network":"pods","container-id":"a","ifname":"a/b"}`, 422},
	}
}

func TestOtherErrors(t *testing.T) {
	t.Parallel()
	d := loadSwagger(t, swaggerFile)
	uncovered := d.otherCodes()
	for name, c := range otherErrorCases() {
		uncovered = slices.DeleteFunc(uncovered, func(code string) bool { return code == strconv.Itoa(c.code) })
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, s := c.start(t)
			method, path, _ := strings.Cut(c.operation, " ")
			a := sendRaw(t, s.Client, method+" "+d.basePath+strings.ReplaceAll(path, "{ip}", freeIPv4)+c.query, c.rest)
			if err := d.validateResponse(c.operation, a); err != nil || a.Status != c.code {
				t.Errorf("got %s, %v; want status %d", a, err, c.code)
			}
		})
	}
	// The packages httpapi and unixsock test a panic and the limits of requests.
	check.Equal(t, "codes without a case", uncovered, []string{"500", "503"})
}

// counted matches the counter of an operation's code, which the metrics have from the start.
var counted = regexp.MustCompile(`(?m)^delegated_ipam_api_requests_total\{code="(\d+)",operation="(\S+) (\S+)"\}`)

// The daemon serves the operations and codes of swagger.yaml, and no others.
func TestServedOperations(t *testing.T) {
	t.Parallel()
	d := loadSwagger(t, swaggerFile)
	_, s := empty(t)
	var served []string
	for _, m := range counted.FindAllStringSubmatch(string(s.Do(t, http.MethodGet, "/metrics").Body), -1) {
		served = append(served, fmt.Sprintf("%s %s %s", m[2], strings.TrimPrefix(m[3], d.basePath), m[1]))
	}
	slices.Sort(served)
	check.Equal(t, "operations with their codes", served, d.codes())
}

// No operation is served that is not in swagger.yaml: neither one of Cilium's, nor one under another method, nor
// what Go servers often serve.
func TestOtherOperations(t *testing.T) {
	t.Parallel()
	d, cilium := loadSwagger(t, swaggerFile), loadSwagger(t, ciliumSwagger(t))
	_, s := empty(t)
	paths := map[string]bool{"/": true, "/docs": true, "/swagger.json": true, "/metrics": true, "/readyz": true, "/debug/pprof/": true}
	for _, operations := range []swagger{d, cilium} {
		for name := range operations.operations {
			_, path, _ := strings.Cut(name, " ")
			paths[path] = true
		}
	}
	for path := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "post"} {
			for _, base := range []string{d.basePath, ""} {
				if method+path == "GET/metrics" && base == "" || base != "" && d.operations[method+" "+path] != nil {
					continue
				}
				request := method + " " + strings.NewReplacer("{ip}", freeIPv4, "{", "", "}", "").Replace(base+path)
				a := sendRaw(t, s.Client, request, "\r\n")
				if method == http.MethodHead && len(a.Body) == 0 {
					a.Body = []byte(`""`)
				}
				if err := d.validateResponse("", a); err != nil {
					t.Errorf("%s: got %s, %v; want an error that it is not served", request, a, err)
				}
			}
		}
	}
}

// sendRaw sends a request of which rest follows the Host.
func sendRaw(t *testing.T, c harness.Client, request, rest string) harness.Response {
	t.Helper()
	conn, err := net.Dial("unix", c.Socket)
	check.Must(t, err)
	defer conn.Close()
	method, _, _ := strings.Cut(request, " ")
	// The server may respond and close the connection before it has read the body.
	go func() {
		_, _ = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s", request, rest)
	}()
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	check.Must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	check.Must(t, err)
	return harness.Response{Status: response.StatusCode, Header: response.Header, Body: body}
}

// durationName matches the names of durations without the unit.
var durationName = regexp.MustCompile(`(?i)(^|-)(age|delay|duration|elapsed|interval|lifetime|period|timeout|ttl|wait)(-|$)|after|seconds`)

// counts begins the description of a number that is not a duration.
var counts = regexp.MustCompile(`^(Number of|Number to|Number that|How many|Counts of) `)

// Each duration of the API is an integer of seconds whose name has the unit, and each other number counts something.
func TestDurations(t *testing.T) {
	loaded, err := loads.Spec(swaggerFile)
	check.Must(t, err)
	s := loaded.Spec()
	for name, definition := range s.Definitions {
		checkDurations(t, name, &definition)
	}
	for name, op := range loadSwagger(t, swaggerFile).operations {
		for _, p := range op.Parameters {
			checkDuration(t, name+" "+p.Name, p.Name, p.Type, p.Format, p.Description)
		}
		responses := slices.Collect(maps.Values(op.Responses.StatusCodeResponses))
		for _, r := range append(responses, *op.Responses.Default) {
			for header, h := range r.Headers {
				if header != "Retry-After" || !strings.HasPrefix(h.Description, "Seconds, ") {
					checkDuration(t, name+" "+header, header, h.Type, h.Format, h.Description)
				}
			}
		}
	}
}

// checkDurations checks the properties of a schema, and theirs.
func checkDurations(t *testing.T, where string, s *spec.Schema) {
	t.Helper()
	for name, property := range s.Properties {
		at := where + "." + name
		values := &property
		if property.AdditionalProperties != nil && property.AdditionalProperties.Schema != nil {
			values = property.AdditionalProperties.Schema
		} else if property.Items != nil {
			values = property.Items.Schema
		}
		checkDuration(t, at, name, strings.Join(values.Type, ","), values.Format, property.Description)
		checkDurations(t, at, values)
	}
}

func checkDuration(t *testing.T, where, name, kind, format, description string) {
	t.Helper()
	number := kind == "integer" || kind == "number"
	switch {
	case strings.HasSuffix(name, "-seconds") && kind == "integer", kind == "boolean", format == "date-time":
	case number && counts.MatchString(description) && !durationName.MatchString(name):
	case number || format == "duration" || durationName.MatchString(name):
		t.Errorf("%s is of type %q and format %q, and is described as %q; want an integer with a name in -seconds, or a description that begins with %s",
			where, kind, format, description, counts)
	}
}
