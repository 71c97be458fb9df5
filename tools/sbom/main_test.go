package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// TestModulesOfAProgram: the document of this very test names the module that writes documents.
func TestModulesOfAProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	document := filepath.Join(t.TempDir(), "sbom.json")
	if err := run(self, document); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(document)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(f, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if name := bom.Metadata.Component.Name; name != "github.com/toolyard/toolyard/tools" {
		t.Errorf("it is about %q", name)
	}
	for _, name := range []string{"std", "github.com/CycloneDX/cyclonedx-go"} {
		if !slices.ContainsFunc(*bom.Components, func(c cdx.Component) bool {
			return c.Name == name && c.Version != ""
		}) {
			t.Errorf("%s is not in it", name)
		}
	}
}

func TestNoProgram(t *testing.T) {
	if err := run("main.go", filepath.Join(t.TempDir(), "sbom.json")); err == nil {
		t.Error("a file that is no program has a document")
	}
}
