package fence_test

import (
	"errors"
	"strings"
	"testing"

	"baton"
	"baton/fence"
)

var tok = baton.Token{Group: "payments", Term: 7, InstanceID: "5f0c"}

func TestHeader(t *testing.T) {
	for text, want := range map[string]fence.Claim{
		"group=payments, term=7, instance=5f0c":                        fence.Unordered(tok),
		"group=payments, term=7, instance=5f0c, seq=42":                fence.Ordered(tok, 42),
		"group=payments, term=7, instance=5f0c, seq=9007199254740991":  fence.Ordered(tok, fence.MaxSeq),
		"group=a:b-c.d_e, term=9007199254740991, instance=x":           fence.Unordered(baton.Token{Group: "a:b-c.d_e", Term: baton.MaxTerm, InstanceID: "x"}),
		"group=" + strings.Repeat("g", 128) + ", term=1, instance=i":   fence.Unordered(baton.Token{Group: strings.Repeat("g", 128), Term: 1, InstanceID: "i"}),
		"group=payments, term=7, instance=" + strings.Repeat("i", 128): fence.Unordered(baton.Token{Group: "payments", Term: 7, InstanceID: strings.Repeat("i", 128)}),
	} {
		got, err := fence.ParseHeader(text)
		if err != nil || got != want {
			t.Errorf("parse %q: got %v, %v, want %v", text, got, err, want)
		}
		if back := fence.FormatHeader(want); back != text {
			t.Errorf("format %v: got %q, want %q", want, back, text)
		}
	}
	if got, err := fence.ParseHeader("group=payments,term=7,\tinstance=5f0c ,seq=1"); err != nil || got != fence.Ordered(tok, 1) {
		t.Errorf("spaces are optional: got %v, %v", got, err)
	}
	for _, text := range []string{
		"",
		"group=payments",
		"group=payments, term=7",
		"term=7, group=payments, instance=5f0c",
		"group=payments, term=7, instance=5f0c, seq=42, seq=43",
		"group=payments, term=7, instance=5f0c, extra=1",
		"group=payments, term=7, seq=42, instance=5f0c",
		"group=payments, term=0, instance=5f0c",
		"group=payments, term=-1, instance=5f0c",
		"group=payments, term=+7, instance=5f0c",
		"group=payments, term=07, instance=5f0c",
		"group=payments, term=7.0, instance=5f0c",
		"group=payments, term=0x7, instance=5f0c",
		"group=payments, term=, instance=5f0c",
		"group=payments, term=9007199254740992, instance=5f0c",
		"group=payments, term=18446744073709551617, instance=5f0c",
		"group=payments, term=7, instance=",
		"group=, term=7, instance=5f0c",
		"group=pay ments, term=7, instance=5f0c",
		"group=\"payments\", term=7, instance=5f0c",
		"group=payments, term=7, instance=5f0c, seq=0",
		"group=payments, term=7, instance=5f0c, seq=-1",
		"group=payments, term=7, instance=5f0c, seq=",
		"group=payments, term=7, instance=5f0c, seq=9007199254740992",
		"group=payments, term=7, instance=5f0c, seq=99999999999999999999",
		"group=payments, term=7, instance=5f0c,",
		"Group=payments, term=7, instance=5f0c",
		"group=payments; term=7; instance=5f0c",
		"group=" + strings.Repeat("g", 129) + ", term=1, instance=i",
	} {
		c, err := fence.ParseHeader(text)
		if !errors.Is(err, baton.ErrInvalidArgument) || c != (fence.Claim{}) {
			t.Errorf("parse %q: got %v, %v, want it refused", text, c, err)
		}
	}
}

func FuzzHeader(f *testing.F) {
	f.Add("group=payments, term=7, instance=5f0c, seq=42")
	f.Add("group=,term=,instance=")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := fence.ParseHeader(text)
		if err != nil {
			if !errors.Is(err, baton.ErrInvalidArgument) {
				t.Errorf("parse %q: %v is of no kind", text, err)
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Errorf("parse %q: let through %v: %v", text, c, err)
		}
		if again, err := fence.ParseHeader(fence.FormatHeader(c)); err != nil || again != c {
			t.Errorf("parse %q: %v does not come back: %v, %v", text, c, again, err)
		}
	})
}

func TestSQLToken(t *testing.T) {
	value, err := fence.SQLToken(tok).Value()
	if err != nil || value != "payments/7/5f0c" {
		t.Fatalf("got %v, %v", value, err)
	}
	for _, src := range []any{"payments/7/5f0c", []byte("payments/7/5f0c")} {
		var back fence.SQLToken
		if err := back.Scan(src); err != nil || baton.Token(back) != tok {
			t.Errorf("scan %v: got %v, %v", src, back, err)
		}
	}
	for _, src := range []any{nil, 7, "", "payments/7", "payments/0/5f0c", "payments/-7/5f0c", "a/b/c/d", "payments/7/"} {
		var back fence.SQLToken
		if err := back.Scan(src); err == nil {
			t.Errorf("scan %v: got %v, want an error", src, back)
		}
	}
	if _, err := (fence.SQLToken{}).Value(); err == nil {
		t.Errorf("an empty token was made a parameter")
	}
}
