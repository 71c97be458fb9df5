package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/builtin"
	"github.com/toolyard/toolyard/internal/command"
	"github.com/toolyard/toolyard/internal/endpoint"
	"github.com/toolyard/toolyard/internal/hooks"
	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/mcp/toolset"
	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/internal/sandbox"
	"github.com/toolyard/toolyard/internal/worker"
	"github.com/toolyard/toolyard/tool"
)

// toolsFlag names files of tools.
const toolsFlag = "--tools"

// Manifests are the files of tools that are not Go.
type Manifests struct {
	Files []string

	read *declared // once they were
	// made are the MCP servers that a worker got, and former those of the files as they were read before.
	made, former []madeServer
	// serving are those that run now, for hooks, which outlive a reload. Nil: no hook needs them.
	serving *atomic.Pointer[[]madeServer]
}

// madeServer is an MCP server as it was declared, with its toolset.
type madeServer struct {
	declaredServer
	set *toolset.Toolset
}

// declared is what the files declare, together.
type declared struct {
	tools   []manifest.Tool
	servers []declaredServer
}

// declaredServer is an MCP server, and where its manifest stands.
type declaredServer struct {
	manifest.Server
	file, dir string
}

// Add adds the flag.
func (m *Manifests) Add(f *pflag.FlagSet) {
	defer Topic(f, TopicTools)()
	f.StringArrayVar(&m.Files, toolsFlag[2:], nil, "offer the tools of a YAML or JSON `FILE` too: commands, HTTP "+
		"endpoints, WebAssembly modules and MCP servers, as docs/tools.md describes; may be repeated")
}

// load reads the files, once. The error names the file and the key.
func (m *Manifests) load() (*declared, error) {
	if m.read != nil {
		return m.read, nil
	}
	out := &declared{}
	tools, servers := map[string]string{}, map[string]string{}
	for _, path := range m.Files {
		data, err := ReadFile(toolsFlag, path, manifest.MaxFileBytes)
		if err != nil {
			return nil, err
		}
		file, err := manifest.Decode(data)
		if err != nil {
			return nil, Usagef("%s %s: %w", toolsFlag, path, err)
		}
		dir, err := filepath.Abs(filepath.Dir(path))
		if err != nil {
			return nil, Usagef("%s %s: %w", toolsFlag, path, err)
		}
		for i, t := range file.Tools {
			if Origin(t.Name) == registry.Builtin {
				return nil, Usagef("%s %s: tools[%d].name: %q is a built-in tool; choose another name", toolsFlag, path,
					i, t.Name)
			}
			if other, ok := tools[t.Name]; ok {
				return nil, Usagef("%s %s: tools[%d].name: %q is declared in %s too; choose another name", toolsFlag,
					path, i, t.Name, other)
			}
			tools[t.Name] = path
			if t.Wasm != nil && !filepath.IsAbs(t.Wasm.File) {
				t.Wasm.File = filepath.Join(dir, t.Wasm.File)
			}
		}
		for i, s := range file.Servers {
			if other, ok := servers[s.Name]; ok {
				return nil, Usagef("%s %s: servers[%d].name: %q is declared in %s too; choose another name", toolsFlag,
					path, i, s.Name, other)
			}
			servers[s.Name] = path
			if s.Dir != "" && !filepath.IsAbs(s.Dir) {
				s.Dir = filepath.Join(dir, s.Dir)
			}
			out.servers = append(out.servers, declaredServer{s, path, cmp.Or(s.Dir, dir)})
		}
		out.tools = append(out.tools, file.Tools...)
	}
	if len(out.servers) > manifest.MaxServers {
		return nil, Usagef("%s: there are %d MCP servers; at most %d are allowed", toolsFlag, len(out.servers),
			manifest.MaxServers)
	}
	m.read = out
	return out, nil
}

// Tools are the commands, endpoints and modules.
func (m *Manifests) Tools(box sandbox.Sandbox, policy sandbox.Policy) ([]tool.Tool, error) {
	all, err := m.load()
	if err != nil {
		return nil, err
	}
	var out []tool.Tool
	for _, t := range all.tools {
		var made tool.Tool
		switch {
		case t.Command != nil:
			made, err = command.New(t, box, policy)
		case t.Wasm != nil:
			made, err = module(t)
		default:
			made, err = endpoint.New(t)
		}
		if err != nil {
			return nil, Usagef("%s: %w", toolsFlag, err)
		}
		out = append(out, made)
	}
	return out, nil
}

// Modules makes the tool of a WebAssembly module. Programs that run modules set it; in the others it is nil, and they
// are 3 MB smaller.
var Modules func(manifest.Tool) (tool.Tool, error)

// module makes the tool of a WebAssembly module. A program that runs none offers it all the same, as it does a command
// where there is no sandbox.
func module(t manifest.Tool) (tool.Tool, error) {
	if Modules != nil {
		return Modules(t)
	}
	none := tool.SetupRequired("%s is a WebAssembly module, and this program runs none: \"worker serve\" and "+
		"\"toolyard\" do. Do without it", t.Name)
	return tool.Raw(tool.Tool{Declaration: t.Declaration,
		Check: func(context.Context, tool.Env, json.RawMessage) error { return none },
		Run: func(context.Context, tool.Env, json.RawMessage) (tool.Output, error) {
			return tool.Output{}, none
		}})
}

// Toolsets are the MCP servers. One that was declared the same before goes on; no other is started yet.
func (m *Manifests) Toolsets(log *slog.Logger) ([]*toolset.Toolset, error) {
	all, err := m.load()
	if err != nil {
		return nil, err
	}
	var out []*toolset.Toolset
	m.made = nil
	for _, s := range all.servers {
		if i := slices.IndexFunc(m.former, func(f madeServer) bool {
			return reflect.DeepEqual(f.declaredServer, s)
		}); i >= 0 {
			out, m.made = append(out, m.former[i].set), append(m.made, m.former[i])
			continue
		}
		set, err := toolset.New(toolset.Options{Server: s.Server, Dir: s.dir, Lookup: os.LookupEnv, Log: log})
		if err != nil {
			return nil, Usagef("%s %s: %w", toolsFlag, s.file, err)
		}
		out, m.made = append(out, set), append(m.made, madeServer{s, set})
	}
	return out, nil
}

// Ask starts the MCP servers, asks each for its tools, and ends them again. It waits [ToolsetWait] at most. The remarks
// name the tools that are left out or altered; a server that does not answer is an error.
func (m *Manifests) Ask(ctx context.Context, log *slog.Logger) (entries []registry.Entry, remarks []registry.Remark,
	err error) {
	sets, err := m.Toolsets(log)
	if err != nil {
		return nil, nil, err
	}
	asking, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for _, set := range sets {
		running.Go(func() { set.Run(asking) })
	}
	late := time.NewTimer(ToolsetWait)
	defer late.Stop()
	for _, set := range sets {
		select {
		case <-set.Settled():
		case <-late.C:
			return nil, nil, fmt.Errorf("the MCP server %q has not listed its tools within %s", set.Name(), ToolsetWait)
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
		if err := set.Down(); err != nil {
			return nil, nil, fmt.Errorf("the MCP server %q has not listed its tools: %w", set.Name(), err)
		}
		for _, t := range set.Tools() {
			entries = append(entries, registry.Entry{Declaration: t.Declaration, Origin: set.Origin(),
				Pool: toolyard.DefaultPool})
		}
		remarks = append(remarks, set.Remarks()...)
	}
	return entries, remarks, nil
}

// grants are the credentials that the files give to tools, as TOOL=NAME.
func (m *Manifests) grants() ([]string, error) {
	all, err := m.load()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, t := range all.tools {
		for _, name := range t.Credentials {
			out = append(out, t.Name+"="+name)
		}
	}
	return out, nil
}

// serverNames are those of the MCP servers.
func (m *Manifests) serverNames() ([]string, error) {
	all, err := m.load()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, s := range all.servers {
		out = append(out, s.Name)
	}
	return out, nil
}

// hookServers are the names of the MCP servers, and what calls the tools of those that run at that time.
func (m *Manifests) hookServers() ([]string, hooks.CallTool, error) {
	names, err := m.serverNames()
	if m.serving == nil {
		m.serving = &atomic.Pointer[[]madeServer]{}
	}
	serving := m.serving
	return names, func(ctx context.Context, server, tool string, input json.RawMessage) (string, error) {
		if made := serving.Load(); made != nil {
			for _, s := range *made {
				if s.Name == server {
					return s.set.Ask(ctx, tool, input)
				}
			}
		}
		return "", errors.New("it is not declared any more")
	}, err
}

// serverCredentials are the names of those that MCP servers get.
func (m *Manifests) serverCredentials() ([]string, error) {
	all, err := m.load()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, s := range all.servers {
		out = append(out, s.Credentials...)
	}
	return out, nil
}

// apply puts what is not a fixed tool into a worker's configuration, and tells the fixed ones apart.
func (m *Manifests) apply(cfg *worker.Config, log *slog.Logger) error {
	cfg.Declared = slices.DeleteFunc(slices.Clone(cfg.Tools),
		func(t tool.Tool) bool { return Origin(t.Name) == registry.Builtin })
	cfg.Tools = slices.DeleteFunc(slices.Clone(cfg.Tools),
		func(t tool.Tool) bool { return Origin(t.Name) != registry.Builtin })
	sets, err := m.Toolsets(log)
	if m.serving != nil && err == nil {
		made := slices.Clone(m.made)
		m.serving.Store(&made)
	}
	for _, set := range sets {
		cfg.Toolsets = append(cfg.Toolsets, set)
	}
	return err
}

// ToolsetWait is how long a command that runs one batch waits for MCP servers to have their tools.
const ToolsetWait = 20 * time.Second

// builtinNames are those of the built-in tools.
var builtinNames = sync.OnceValue(func() map[string]bool {
	tools, err := builtin.All(builtin.Options{RunCode: true})
	if err != nil {
		panic(fmt.Sprintf("the built-in tools without any option: %v", err)) // a bug of ours
	}
	names := map[string]bool{}
	for _, t := range tools {
		names[t.Name] = true
	}
	return names
})

// Origin is where a fixed tool comes from: every name that is no built-in tool's is from a manifest.
func Origin(name string) registry.Origin {
	if builtinNames()[name] {
		return registry.Builtin
	}
	return registry.Toolset
}
