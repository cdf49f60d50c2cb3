package restapi

import (
	"net/http"
	"slices"

	"github.com/go-openapi/analysis"
	"github.com/go-openapi/runtime/middleware"
)

// API is the handler of the API under its base path /v1. It knows the names of
// its operations, which are few, whatever clients ask for.
type API struct {
	http.Handler
	routes *middleware.Context
	codes  map[string][]int
}

func newAPI(h http.Handler, routes *middleware.Context, spec *analysis.Spec, basePath string) *API {
	a := &API{Handler: h, routes: routes, codes: map[string][]int{}}
	for method, paths := range spec.Operations() {
		for path, operation := range paths {
			name := method + " " + basePath + path
			for code := range operation.Responses.StatusCodeResponses {
				a.codes[name] = append(a.codes[name], code)
			}
			slices.Sort(a.codes[name])
		}
	}
	return a
}

// Operations returns each operation, such as "POST /v1/ipam/{ip}", with the
// status codes that swagger.yaml documents for it, ascending.
func (a *API) Operations() map[string][]int { return a.codes }

// Operation returns the operation that a request is for, empty for none, and the
// request to be served, which carries its route: it is looked up once.
func (a *API) Operation(r *http.Request) (string, *http.Request) {
	route, routed, ok := a.routes.RouteInfo(r)
	if !ok {
		return "", r
	}
	return r.Method + " " + route.PathPattern, routed
}
