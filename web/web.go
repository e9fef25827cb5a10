// Package web is the dashboard: static files that need no build step and load
// nothing from elsewhere. It shows what the HTTP API tells, and has no other source.
package web

import (
	"embed"
	"io/fs"
	"net/http"
	"path"
)

//go:embed static
var files embed.FS

// Has reports whether there is a file of this name; the page itself is "".
func Has(name string) bool {
	info, err := fs.Stat(files, path.Join("static", name))
	return err == nil && (name == "" || !info.IsDir())
}

// Handler serves the dashboard's files, the page itself at "/".
func Handler() http.Handler {
	static, err := fs.Sub(files, "static")
	if err != nil {
		panic(err) // the name is the one embedded above
	}
	server := http.FileServerFS(static)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache")
		server.ServeHTTP(w, r)
	})
}
