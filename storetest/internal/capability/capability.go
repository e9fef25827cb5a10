// Package capability lets a wrapper of a store have exactly the optional
// capabilities of what it wraps.
package capability

import "baton"

// Set holds the optional capabilities of a store; nil for one it does not have.
type Set struct {
	Line      baton.Line
	Ender     baton.Ender
	Historian baton.Historian
	Registry  baton.Registry
}

// Of finds what s can do.
func Of(s baton.Store) Set {
	var a Set
	a.Line, _ = s.(baton.Line)
	a.Ender, _ = s.(baton.Ender)
	a.Historian, _ = s.(baton.Historian)
	a.Registry, _ = s.(baton.Registry)
	return a
}

const (
	line = 1 << iota
	ender
	historian
	registry
)

// Join makes a store that is s and has the capabilities of a, and no others:
// a type assertion on it tells the truth.
func Join(s baton.Store, a Set) baton.Store {
	have := 0
	if a.Line != nil {
		have |= line
	}
	if a.Ender != nil {
		have |= ender
	}
	if a.Historian != nil {
		have |= historian
	}
	if a.Registry != nil {
		have |= registry
	}
	switch have {
	case line:
		return struct {
			baton.Store
			baton.Line
		}{s, a.Line}
	case ender:
		return struct {
			baton.Store
			baton.Ender
		}{s, a.Ender}
	case line | ender:
		return struct {
			baton.Store
			baton.Line
			baton.Ender
		}{s, a.Line, a.Ender}
	case historian:
		return struct {
			baton.Store
			baton.Historian
		}{s, a.Historian}
	case line | historian:
		return struct {
			baton.Store
			baton.Line
			baton.Historian
		}{s, a.Line, a.Historian}
	case ender | historian:
		return struct {
			baton.Store
			baton.Ender
			baton.Historian
		}{s, a.Ender, a.Historian}
	case line | ender | historian:
		return struct {
			baton.Store
			baton.Line
			baton.Ender
			baton.Historian
		}{s, a.Line, a.Ender, a.Historian}
	case registry:
		return struct {
			baton.Store
			baton.Registry
		}{s, a.Registry}
	case line | registry:
		return struct {
			baton.Store
			baton.Line
			baton.Registry
		}{s, a.Line, a.Registry}
	case ender | registry:
		return struct {
			baton.Store
			baton.Ender
			baton.Registry
		}{s, a.Ender, a.Registry}
	case line | ender | registry:
		return struct {
			baton.Store
			baton.Line
			baton.Ender
			baton.Registry
		}{s, a.Line, a.Ender, a.Registry}
	case historian | registry:
		return struct {
			baton.Store
			baton.Historian
			baton.Registry
		}{s, a.Historian, a.Registry}
	case line | historian | registry:
		return struct {
			baton.Store
			baton.Line
			baton.Historian
			baton.Registry
		}{s, a.Line, a.Historian, a.Registry}
	case ender | historian | registry:
		return struct {
			baton.Store
			baton.Ender
			baton.Historian
			baton.Registry
		}{s, a.Ender, a.Historian, a.Registry}
	case line | ender | historian | registry:
		return struct {
			baton.Store
			baton.Line
			baton.Ender
			baton.Historian
			baton.Registry
		}{s, a.Line, a.Ender, a.Historian, a.Registry}
	}
	// No capability: hide those that s may have of its own.
	return struct{ baton.Store }{s}
}
