package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"time"

	"baton"
)

// MaxBody is the largest body that a server reads.
const MaxBody = 64 << 10

// Fields says what happens to fields that a body has and its type has not.
type Fields int

const (
	// IgnoreUnknown lets old servers serve new clients.
	IgnoreUnknown Fields = iota
	// RefuseUnknown is for policies: a limit that is misspelt must not be a limit that is missing.
	RefuseUnknown
)

// Decode reads one JSON object, and nothing after it, from r into v. What is
// wrong with it is told as *baton.InvalidArgumentError, naming the field where
// there is one; a body above MaxBody is baton.ErrTooLarge.
func Decode(r io.Reader, v any, fields Fields) error {
	body, err := io.ReadAll(io.LimitReader(r, MaxBody+1))
	if err != nil {
		return &baton.InvalidArgumentError{Field: "body", Value: err.Error(), Want: "a body that can be read to its end"}
	}
	if len(body) > MaxBody {
		return fmt.Errorf("body: %w: at most %d bytes", baton.ErrTooLarge, MaxBody)
	}
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return &baton.InvalidArgumentError{Field: "body", Value: clip(string(trimmed)), Want: "a JSON object"}
	}
	if fields == IgnoreUnknown && json.Unmarshal(body, v) == nil {
		return nil // what follows says what is wrong with the rest
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if fields == RefuseUnknown {
		dec.DisallowUnknownFields()
		if name, _ := repeated(json.NewDecoder(bytes.NewReader(body)), ""); name != "" {
			return &baton.InvalidArgumentError{Field: clip(name), Value: "given twice", Want: "every field at most once"}
		}
	}
	if err := dec.Decode(v); err != nil {
		return decodeError(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return &baton.InvalidArgumentError{Field: "body", Value: fmt.Sprintf("more after byte %d", dec.InputOffset()), Want: "one JSON object and nothing after it"}
	}
	return nil
}

// repeated finds a field that an object has twice, in whatever case: a limit
// that the second one takes back must not look like one that holds. What is
// not JSON is left for the decoder to say: ok is false.
func repeated(dec *json.Decoder, at string) (name string, ok bool) {
	token, err := dec.Token()
	if err != nil {
		return "", false
	}
	open, nested := token.(json.Delim)
	if !nested {
		return "", true
	}
	seen := map[string]bool{}
	for dec.More() {
		inner := at
		if open == '{' {
			field, err := dec.Token()
			if err != nil {
				return "", false
			}
			inner = strings.TrimPrefix(fmt.Sprint(at, ".", field), ".")
			key := strings.ToLower(fmt.Sprint(field))
			if seen[key] {
				return inner, true
			}
			seen[key] = true
		}
		if name, ok := repeated(dec, inner); name != "" || !ok {
			return name, ok
		}
	}
	_, err = dec.Token() // its end
	return "", err == nil
}

func decodeError(err error) error {
	var typed *json.UnmarshalTypeError
	if errors.As(err, &typed) && typed.Field != "" {
		return &baton.InvalidArgumentError{Field: typed.Field, Value: clip(typed.Value), Want: wantOf(typed.Type)}
	}
	return &baton.InvalidArgumentError{Field: "body", Value: clip(strings.TrimPrefix(err.Error(), "json: ")), Want: "a JSON object as documented"}
}

func wantOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Int64:
		return fmt.Sprintf("a whole number of milliseconds up to %d", math.MaxInt64/int64(time.Millisecond))
	case reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 to %d", baton.MaxTerm)
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "an array"
	default:
		return "an object"
	}
}
