// Command sbom writes which modules a Go program has been made with, as a CycloneDX document.
package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: sbom PROGRAM DOCUMENT")
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		log.Fatal("sbom: ", err)
	}
}

func run(program, document string) (err error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	f, err := os.Create(document)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f, info)
}

// write writes the document. It has no time and no random number: the same program gives the same document.
func write(to io.Writer, info *buildinfo.BuildInfo) error {
	if info.Main.Path == "" {
		return errors.New("the program does not say which modules it has been made with")
	}
	component := func(kind cdx.ComponentType, path, version string) cdx.Component {
		purl := fmt.Sprintf("pkg:golang/%s@%s", path, strings.ReplaceAll(version, "+", "%2B"))
		return cdx.Component{BOMRef: purl, Type: kind, Name: path, Version: version, PackageURL: purl}
	}
	top := component(cdx.ComponentTypeApplication, info.Main.Path, info.Main.Version)
	all := []cdx.Component{component(cdx.ComponentTypeLibrary, "std", info.GoVersion)}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, component(cdx.ComponentTypeLibrary, m.Path, m.Version))
	}
	refs := make([]string, len(all))
	for i, c := range all {
		refs[i] = c.BOMRef
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &top}
	bom.Components = &all
	bom.Dependencies = &[]cdx.Dependency{{Ref: top.BOMRef, Dependencies: &refs}}
	return cdx.NewBOMEncoder(to, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}
