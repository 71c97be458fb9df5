// Package wasm makes tools from the WebAssembly modules that an operator has declared.
//
// A module of WASI preview 1 runs once for each call, in a virtual machine of its own inside the worker. It is compiled
// when the tool is made, so that a call starts within milliseconds. It has no right but what the manifest gives it: its
// arguments, stdin and environment, directories that it can only read, the clock, random numbers, and what it writes to
// stdout and stderr. It has no network, starts nothing, and changes nothing. So its calls need no sandbox, whatever
// their class.
//
// Authority: the manifest. Failure: an exit status other than 0, a trap, and every limit are execution_failed, with
// stderr for the model. A module has no fuel that is counted: it has one thread, and its call's time limit ends it
// wherever it is, since each loop and each function begins with a look at whether it is to end.
package wasm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
)

// The limits of a module. The manifest may set others, up to those of its schema.
const (
	MaxModuleBytes  = 64 << 20 // of the file
	MaxTableEntries = 1 << 20  // functions that can be called through a table; each takes 8 bytes
	DefaultMemory   = 256 << 20
	DefaultFiles    = 64      // open at a time, directories included
	DefaultOutput   = 1 << 20 // bytes of stdout and stderr together
)

// pageBytes is the unit of a module's memory.
const pageBytes = 64 << 10

// Isolation is the word in results for what stood around a module.
const Isolation = "wasm"

// start is the function that runs a program.
const start = "_start"

// features are those of WebAssembly 2.0 without reference types: with them a module can grow its tables, which nothing
// bounds.
const features = api.CoreFeaturesV2 &^ api.CoreFeatureReferenceTypes

// load reads a module and checks what can be told without running it. memory is the most that it may have, in bytes.
func load(path, digest string, memory int64) (code []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	if code, err = io.ReadAll(io.LimitReader(f, MaxModuleBytes+1)); err != nil {
		return nil, err
	}
	if len(code) > MaxModuleBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", path, MaxModuleBytes)
	}
	if got := sha256.Sum256(code); digest != "" && hex.EncodeToString(got[:]) != digest {
		return nil, fmt.Errorf("%s has the SHA-256 %x, and the manifest says %s", path, got, digest)
	}
	if err := checkSizes(code, memory); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return code, nil
}

// What the binary format has at its beginning, and the sections and flags that matter here.
const (
	magic            = "\x00asm\x01\x00\x00\x00"
	sectionCustom    = 0 // this and the two others below do not begin with the number of their entries
	sectionStart     = 8
	sectionDataCount = 12
	sectionImport    = 2
	sectionTable     = 4
	sectionMemory    = 5
	tableWithInit    = 0x40 // a table that says what its entries are at first
	hasMaximum       = 1    // a flag of limits
	importFunction   = 0    // the kind of an import
)

// checkSizes looks at what a module has from the beginning: its tables, which wazero does not bound, and its memory,
// which must fit our allocator.
func checkSizes(code []byte, memory int64) error {
	rest, ok := bytes.CutPrefix(code, []byte(magic))
	if !ok {
		return errors.New("is no WebAssembly module")
	}
	for len(rest) > 0 {
		id := rest[0]
		rest = rest[1:]
		size, err := number(&rest)
		if err != nil || size > uint64(len(rest)) {
			return errors.New("ends in the middle of a section")
		}
		section := rest[:size]
		rest = rest[size:]
		if err := checkCount(id, section); err != nil {
			return err
		}
		switch id {
		case sectionImport:
			err = checkImports(section)
		case sectionTable:
			err = eachLimit(section, true, func(least uint64) error {
				if least > MaxTableEntries {
					return fmt.Errorf("has a table of %d entries; at most %d are allowed", least, MaxTableEntries)
				}
				return nil
			})
		case sectionMemory:
			err = eachLimit(section, false, func(least uint64) error {
				if least > uint64(memory)/pageBytes {
					return fmt.Errorf("needs %d MiB of memory from the beginning, and may have %d; raise "+
						"limits.memory_mib", least*pageBytes>>20, memory>>20)
				}
				return nil
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkCount refuses a section that says it has more entries than bytes: wazero makes room for them before it reads
// them.
func checkCount(id byte, section []byte) error {
	if id == sectionCustom || id == sectionStart || id == sectionDataCount {
		return nil
	}
	if count, err := number(&section); err != nil || count > uint64(len(section)) {
		return fmt.Errorf("has a section (%d) that says it has more entries than fit into it", id)
	}
	return nil
}

// checkImports refuses imports that are no functions: WASI preview 1 has nothing else. Of each import only what stands
// in front of it in the section is read, up to the first that is refused.
func checkImports(section []byte) error {
	broken := errors.New("has a section of imports that cannot be read")
	count, err := number(&section)
	if err != nil {
		return broken
	}
	for range count {
		var names [2]string // the module's and the import's
		for i := range names {
			size, err := number(&section)
			if err != nil || size > uint64(len(section)) {
				return broken
			}
			names[i], section = string(section[:size]), section[size:]
		}
		if len(section) == 0 {
			return broken
		}
		kind := section[0]
		section = section[1:]
		if kind != importFunction {
			what := "something else than a function"
			if known := []string{"", "a table", "a memory", "a global"}; int(kind) < len(known) {
				what = known[kind]
			}
			return fmt.Errorf("imports %s, %s.%s; there is WASI preview 1 only, which has functions", what, names[0],
				names[1])
		}
		if _, err := number(&section); err != nil { // its type
			return broken
		}
	}
	return nil
}

// eachLimit calls check with the smallest size of each table or memory of a section.
func eachLimit(section []byte, table bool, check func(least uint64) error) error {
	broken := errors.New("has a section of tables or memories that cannot be read")
	count, err := number(&section)
	if err != nil {
		return broken
	}
	for range count {
		if table {
			if len(section) == 0 || section[0] == tableWithInit {
				return broken
			}
			section = section[1:] // what the entries are
		}
		if len(section) == 0 {
			return broken
		}
		flags := section[0]
		section = section[1:]
		least, err := number(&section)
		if err == nil && flags&hasMaximum != 0 {
			_, err = number(&section)
		}
		if err != nil {
			return broken
		}
		if err := check(least); err != nil {
			return err
		}
	}
	return nil
}

// number takes a number off the front.
func number(rest *[]byte) (uint64, error) {
	v, n := binary.Uvarint(*rest)
	if n <= 0 {
		return 0, errors.New("no number")
	}
	*rest = (*rest)[n:]
	return v, nil
}

// compile makes a module ready to run.
func compile(ctx context.Context, code []byte) (wazero.Runtime, wazero.CompiledModule, error) {
	// The runtime is never closed: modules that run would end. Its finalizers give its memory back once the tool is
	// gone.
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(features).
		WithCloseOnContextDone(true).WithDebugInfoEnabled(false))
	host := r.NewHostModuleBuilder(wasi_snapshot_preview1.ModuleName)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(host)
	// Of wazero 1.12.0, this one makes room for all descriptors up to the one that it is asked for.
	host.NewFunctionBuilder().WithFunc(func(_, _ int32) int32 { return notSupported }).Export("fd_renumber")
	wasi, err := host.Instantiate(ctx)
	if err != nil {
		return nil, nil, err
	}
	module, err := r.CompileModule(ctx, code)
	if err != nil {
		return nil, nil, err
	}
	if _, ok := module.ExportedFunctions()[start]; !ok {
		return nil, nil, errors.New("exports no function _start: it is a library, and no program of WASI preview 1")
	}
	offered := wasi.ExportedFunctionDefinitions()
	for _, f := range module.ImportedFunctions() {
		from, name, _ := f.Import()
		has, ok := offered[name]
		switch {
		case from != wasi_snapshot_preview1.ModuleName:
			return nil, nil, fmt.Errorf("imports %s.%s; there is WASI preview 1 only", from, name)
		case !ok:
			return nil, nil, fmt.Errorf("imports %s.%s, which WASI preview 1 does not have", from, name)
		case !slices.Equal(f.ParamTypes(), has.ParamTypes()) || !slices.Equal(f.ResultTypes(), has.ResultTypes()):
			return nil, nil, fmt.Errorf("imports %s.%s with other types than WASI preview 1 has for it", from, name)
		}
	}
	return r, module, nil
}

// notSupported is ENOTSUP of WASI preview 1.
const notSupported = 58
