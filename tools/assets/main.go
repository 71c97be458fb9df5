// Command assets makes the files of the web console from its sources: it bundles and shrinks TypeScript and styles with
// esbuild, and needs no network.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: assets DIR, which has the sources in ui and gets the files in dist")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "assets:", err)
		os.Exit(1)
	}
}

// copied are the files that are what they are.
var copied = map[string]string{"index.html": "index.html", "icon.svg": "icon.svg",
	"vendor/preact/LICENSE": "licences.txt"}

func run(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	ui, dist := filepath.Join(dir, "ui"), filepath.Join(dir, "dist")
	if err := errors.Join(os.RemoveAll(dist), os.MkdirAll(dist, 0o755)); err != nil {
		return err
	}
	vendor := func(name string) string { return filepath.Join(ui, "vendor", "preact", name) }
	result := api.Build(api.BuildOptions{
		AbsWorkingDir: ui,
		EntryPointsAdvanced: []api.EntryPoint{
			{InputPath: "main.tsx", OutputPath: "app"}, {InputPath: "style.css", OutputPath: "style"},
		},
		Outdir: dist, Write: true, Bundle: true, Format: api.FormatESModule, Target: api.ES2022,
		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true, Charset: api.CharsetUTF8,
		LegalComments: api.LegalCommentsNone, JSX: api.JSXTransform, JSXFactory: "h", JSXFragment: "Fragment",
		Alias: map[string]string{"preact": vendor("dist/preact.mjs"),
			"preact/hooks": vendor("hooks/dist/hooks.mjs")},
		Loader:   map[string]api.Loader{".yaml": api.LoaderText}, // the alert rules
		LogLevel: api.LogLevelWarning,
	})
	if n := len(result.Errors); n > 0 {
		return fmt.Errorf("esbuild found %d errors", n)
	}
	for from, to := range copied {
		data, err := os.ReadFile(filepath.Join(ui, filepath.FromSlash(from)))
		if err == nil {
			err = os.WriteFile(filepath.Join(dist, to), data, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
