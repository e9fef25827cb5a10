package remotestore

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func readAll(stream string) (got []message, err error) {
	r := newEventReader(strings.NewReader(stream))
	for {
		m, err := r.next()
		if err != nil {
			return got, err
		}
		got = append(got, m)
	}
}

func TestEventStream(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		want         []string // "name|data"
	}{
		{"one", "data: x\n\n", []string{"|x"}},
		{"named", "event: bye\ndata: {}\n\n", []string{"bye|{}"}},
		{"id and retry", "id: 7\nretry: 100\ndata: x\n\n", []string{"|x"}},
		{"comments", ": hi\n\n:\n\ndata: x\n\n: still here\n\n", []string{"|x"}},
		{"no space", "data:x\n\n", []string{"|x"}},
		{"two lines of data", "data: a\ndata: b\n\n", []string{"|a\nb"}},
		{"CRLF", "data: x\r\n\r\n", []string{"|x"}},
		{"cut off", "data: a\n\ndata: b\n", []string{"|a"}},
		{"cut off within a line", "data: a\n\ndata: b", []string{"|a"}},
		{"a name does not outlive its message", "event: bye\n\ndata: x\n\n", []string{"|x"}},
		{"unknown field", "color: red\ndata: x\n\n", []string{"|x"}},
		{"nothing", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := readAll(c.stream)
			if !errors.Is(err, io.EOF) {
				t.Errorf("ended with %v", err)
			}
			var flat []string
			for _, m := range got {
				flat = append(flat, m.name+"|"+string(m.data))
			}
			if strings.Join(flat, "\x00") != strings.Join(c.want, "\x00") {
				t.Errorf("got %q, want %q", flat, c.want)
			}
		})
	}
}

func TestEventStreamIsBounded(t *testing.T) {
	for name, stream := range map[string]string{
		"a long line":    "data: " + strings.Repeat("x", 2*maxMessage),
		"a long message": strings.Repeat("data: x\n", maxMessage),
	} {
		if got, err := readAll(stream); len(got) != 0 || errors.Is(err, io.EOF) {
			t.Errorf("%s: %d messages, %v: want an error", name, len(got), err)
		}
	}
}

func FuzzEventStream(f *testing.F) {
	f.Add("id: 1\ndata: {}\n\n: c\n\nevent: bye\ndata: {}\n\n")
	f.Fuzz(func(t *testing.T, stream string) {
		got, err := readAll(stream)
		if err == nil {
			t.Fatal("a stream that never ends")
		}
		for _, m := range got {
			if len(m.data) == 0 || len(m.data) > maxMessage {
				t.Errorf("a message of %d bytes", len(m.data))
			}
		}
	})
}
