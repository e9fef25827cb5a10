package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"

	"baton/api"
	"baton/server/httpapi"
)

// contract is a transport that holds every exchange to the OpenAPI document: a
// request that was accepted must be one that it allows, and an answer must be
// one that it describes, with no field more.
type contract struct {
	t    testing.TB
	next http.RoundTripper
	docs *documents
}

type documents struct {
	doc     *openapi3.T
	lenient routers.Router // for requests: unknown fields are ignored
	strict  routers.Router // for answers: an undocumented field is an error
	errors  *openapi3.Schema
	event   *openapi3.Schema
}

var loadDocuments = sync.OnceValues(func() (*documents, error) {
	load := func(strict bool) (*openapi3.T, routers.Router, error) {
		doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI())
		if err != nil {
			return nil, nil, err
		}
		if strict {
			for _, s := range doc.Components.Schemas {
				if no := false; len(s.Value.Properties) > 0 {
					s.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: &no}
				}
			}
		}
		router, err := gorillamux.NewRouter(doc)
		return doc, router, err
	}
	d := &documents{}
	var err error
	if _, d.lenient, err = load(false); err != nil {
		return nil, err
	}
	if d.doc, d.strict, err = load(true); err != nil {
		return nil, err
	}
	d.errors = d.doc.Components.Schemas["Error"].Value
	d.event = d.doc.Components.Schemas["Event"].Value
	return d, nil
})

func newContract(t testing.TB, next http.RoundTripper) *contract {
	t.Helper()
	docs, err := loadDocuments()
	if err != nil {
		t.Fatal(err)
	}
	return &contract{t: t, next: next, docs: docs}
}

func (c *contract) RoundTrip(req *http.Request) (*http.Response, error) {
	var sent []byte
	if req.Body != nil {
		var err error
		if sent, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(sent))
	}
	resp, err := c.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	contentType := resp.Header.Get("Content-Type")
	var body []byte
	if contentType == "application/json" && req.Method != http.MethodHead {
		if body, err = io.ReadAll(resp.Body); err != nil {
			return nil, err
		}
		_ = resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	if err := c.check(req, sent, resp, body); err != nil {
		c.t.Errorf("%s %s %s answered %d %s\nagainst the OpenAPI document: %v", req.Method, req.URL.RequestURI(), sent, resp.StatusCode, body, err)
	}
	return resp, nil
}

func (c *contract) check(req *http.Request, sent []byte, resp *http.Response, body []byte) error {
	refused := resp.StatusCode >= 400
	probe := req.Clone(req.Context())
	if req.Method == http.MethodHead {
		probe.Method = http.MethodGet // whoever serves one serves the other
	}
	probe.Body = io.NopCloser(bytes.NewReader(sent))
	if len(sent) == 0 {
		probe.Body = http.NoBody
	}
	in, err := c.input(c.docs.lenient, probe)
	if err != nil {
		if !refused {
			return fmt.Errorf("accepted, but there is no such route: %w", err)
		}
		return c.docs.errors.VisitJSON(decoded(body))
	}
	if err := openapi3filter.ValidateRequest(req.Context(), in); err != nil && !refused {
		return fmt.Errorf("the request was accepted: %w", err)
	}
	if resp.StatusCode == http.StatusMethodNotAllowed || strings.Contains(req.URL.Path, "//") {
		return c.docs.errors.VisitJSON(decoded(body))
	}
	strict, err := c.input(c.docs.strict, probe)
	if err != nil {
		return err
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: strict, Status: resp.StatusCode, Header: resp.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: body == nil, MultiError: true},
	}
	out.SetBodyBytes(body)
	return openapi3filter.ValidateResponse(req.Context(), out)
}

func (c *contract) input(router routers.Router, req *http.Request) (*openapi3filter.RequestValidationInput, error) {
	route, params, err := router.FindRoute(req)
	if err != nil {
		return nil, err
	}
	return &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route}, nil
}

func decoded(raw []byte) any {
	var v any
	_ = json.Unmarshal(raw, &v) // nil fails the schema
	return v
}

func TestRoutesAreThoseOfTheDocument(t *testing.T) {
	docs, err := loadDocuments()
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for path, item := range docs.doc.Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	served := httpapi.New(newRig(t).svc, httpapi.Config{}).Routes()
	slices.Sort(documented)
	slices.Sort(served)
	if !slices.Equal(documented, served) {
		t.Errorf("documented:\n%s\nserved:\n%s", strings.Join(documented, "\n"), strings.Join(served, "\n"))
	}
}
