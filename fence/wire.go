package fence

import (
	"database/sql/driver"
	"fmt"
	"strconv"
	"strings"

	"baton"
)

// Header is the HTTP header in which a claim travels:
//
//	Baton-Fence: group=payments, term=7, instance=5f0c..., seq=42
//
// An unordered claim has no seq. Ids need no quoting, see [baton.ValidateID].
const Header = "Baton-Fence"

// FormatHeader returns the value of the header for a valid claim.
func FormatHeader(c Claim) string {
	s := fmt.Sprintf("group=%s, term=%d, instance=%s", c.token.Group, c.token.Term, c.token.InstanceID)
	if c.ordered {
		s += fmt.Sprintf(", seq=%d", c.seq)
	}
	return s
}

// ParseHeader reads what FormatHeader wrote. It is strict: all fields in this
// order, each once, numbers in plain decimal, nothing else. What does not
// parse is a *baton.InvalidArgumentError.
func ParseHeader(value string) (Claim, error) {
	bad := func() (Claim, error) {
		return Claim{}, &baton.InvalidArgumentError{Field: Header, Value: value, Want: "group=..., term=..., instance=...[, seq=...]"}
	}
	fields := strings.Split(value, ",")
	names := []string{"group=", "term=", "instance=", "seq="}
	if len(fields) < 3 || len(fields) > len(names) {
		return bad()
	}
	values := make([]string, len(fields))
	for i, f := range fields {
		v, ok := strings.CutPrefix(strings.Trim(f, " \t"), names[i])
		if !ok {
			return bad()
		}
		values[i] = v
	}
	term, ok := parseDecimal(values[1])
	if !ok {
		return Claim{}, &baton.InvalidArgumentError{Field: "token.term", Value: values[1], Want: fmt.Sprintf("1 to %d", baton.MaxTerm)}
	}
	c := Unordered(baton.Token{Group: values[0], Term: baton.Term(term), InstanceID: values[2]})
	if len(values) == len(names) {
		seq, ok := parseDecimal(values[3])
		if !ok {
			return Claim{}, &baton.InvalidArgumentError{Field: "seq", Value: values[3], Want: fmt.Sprintf("1 to %d", MaxSeq)}
		}
		c = Ordered(c.token, seq)
	}
	if err := c.Validate(); err != nil {
		return Claim{}, err
	}
	return c, nil
}

// parseDecimal takes digits only, without sign or leading zeros, so that one
// number has one spelling.
func parseDecimal(s string) (int64, bool) {
	if s == "" || s[0] < '0' || s[0] > '9' || (s[0] == '0' && s != "0") {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// SQLToken is a token as one SQL parameter or column, in the text form
// group/term/instance: for rows that keep the token they were written under.
type SQLToken baton.Token

// Value implements driver.Valuer.
func (t SQLToken) Value() (driver.Value, error) {
	if err := baton.Token(t).Validate(); err != nil {
		return nil, err
	}
	return baton.Token(t).String(), nil
}

// Scan implements sql.Scanner.
func (t *SQLToken) Scan(src any) error {
	var s string
	switch v := src.(type) {
	case string:
		s = v
	case []byte:
		s = string(v)
	default:
		return fmt.Errorf("scan a token: column is %T, want text", src)
	}
	parsed, err := ParseToken(s)
	if err != nil {
		return fmt.Errorf("scan a token: %w", err)
	}
	*t = SQLToken(parsed)
	return nil
}

// ParseToken reads the text form that baton.Token's String writes. What does
// not parse is a *baton.InvalidArgumentError.
func ParseToken(s string) (baton.Token, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 {
		return baton.Token{}, &baton.InvalidArgumentError{Field: "token", Value: s, Want: "group/term/instance"}
	}
	term, ok := parseDecimal(parts[1])
	if !ok {
		return baton.Token{}, &baton.InvalidArgumentError{Field: "token.term", Value: parts[1], Want: fmt.Sprintf("1 to %d", baton.MaxTerm)}
	}
	t := baton.Token{Group: parts[0], Term: baton.Term(term), InstanceID: parts[2]}
	return t, t.Validate()
}
