// Package console is the web console: pages for people that dispatchers serve beside the HTTP API.
//
// The pages are static files in the binary and hold no data: a browser asks the HTTP API for it, with the rights of
// the token that its user signed in with. So this package knows nothing of batches, and nothing here needs a token.
//
// ui has the sources. go generate makes dist of them with esbuild, at the version of tools/go.mod; dist is committed,
// so nobody needs anything but Go to build a dispatcher. docs/console.md describes the pages, and ADR 0040 says why
// they are made so.
package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

//go:generate go run -C ../../tools ./assets ../internal/console

//go:embed dist
var dist embed.FS

// Policy is the Content-Security-Policy of the pages: everything comes from the server itself, no script or style
// stands in a page, and no other page shows one in a frame.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; " +
	"trusted-types 'none'"

// index is the page; all other files stand below prefix.
const (
	index  = "index.html"
	prefix = "/console/"
)

// types are the media types of the files, by the ends of their names.
var types = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8"}

// Files returns what answers requests for each path of the console.
func Files() (map[string]http.Handler, error) {
	out := map[string]http.Handler{}
	err := fs.WalkDir(dist, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(dist, name)
		if err != nil {
			return err
		}
		kind, ok := types[path.Ext(name)]
		if !ok {
			return fmt.Errorf("the console has a file of no known type: %s", name)
		}
		name = strings.TrimPrefix(name, "dist/")
		at := prefix + name
		if name == index {
			at = "/"
		}
		out[at] = file(name, kind, data)
		return nil
	})
	return out, err
}

// file answers with a file, which a browser asks for again each time and gets when it has changed.
func file(name, kind string, data []byte) http.Handler {
	sum := sha256.Sum256(data)
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for header, value := range map[string]string{
			"Content-Type": kind, "ETag": tag, "Cache-Control": "no-cache", "Content-Security-Policy": Policy,
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			w.Header().Set(header, value)
		}
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
	})
}
