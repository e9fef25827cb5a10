// Package api is Baton's HTTP API as data: the JSON bodies of every route, how
// they become the words of package baton and back, and how errors keep their
// kind and their facts across the wire. Server and client both use it, so they
// cannot disagree.
//
// Durations and stamps are whole milliseconds, names are snake_case. Stamps
// (lease_expires_at_ms, ts_ms) are the server's wall clock, for people;
// programs count lease_remaining_ms from before they sent the request.
//
// The same in a form that other languages can use is in openapi.json.
package api

import _ "embed"

//go:embed openapi.json
var openAPI string

// OpenAPI returns the OpenAPI document that describes this package's routes and bodies.
func OpenAPI() []byte { return []byte(openAPI) }
