package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// print writes v as one line of JSON, or else what text writes.
func (a *app) print(v any, text func(w io.Writer) error) error {
	if a.output == "json" {
		return json.NewEncoder(a.Stdout).Encode(v)
	}
	return text(a.Stdout)
}

// table writes aligned columns.
func table(w io.Writer, head []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		cells := slices.Clone(row)
		for i, c := range cells {
			if c == "" {
				cells[i] = "-"
			}
		}
		if _, err := fmt.Fprintln(t, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return t.Flush()
}

func millis(ms int64) string {
	if ms == 0 {
		return ""
	}
	return (time.Duration(ms) * time.Millisecond).String()
}

func stamp(ms int64) string {
	if ms == 0 {
		return ""
	}
	return time.UnixMilli(ms).Format("2006-01-02T15:04:05.000Z07:00")
}

// pairs writes metadata in the order of its keys.
func pairs(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return strings.Join(out, ",")
}
