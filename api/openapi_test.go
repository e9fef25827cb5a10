package api_test

import (
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"baton"
	"baton/api"
)

func TestOpenAPIIsValid(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(api.OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	codes := map[any]bool{}
	for _, c := range doc.Components.Schemas["Error"].Value.Properties["error"].Value.Enum {
		codes[c] = true
	}
	for _, k := range baton.ErrorKinds() {
		if k.Err != baton.ErrHeld && !codes[k.Code] {
			t.Errorf("error code %s is not in the document", k.Code)
		}
		delete(codes, k.Code)
	}
	for c := range codes {
		t.Errorf("the document has an error code %v that nobody sends", c)
	}
}
