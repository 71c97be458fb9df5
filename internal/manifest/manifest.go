package manifest

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/toolyard/toolyard/internal/schema"
	"github.com/toolyard/toolyard/tool"
)

// The limits of a file. The schema beside this file has those of its parts.
const (
	MaxFileBytes = 1 << 20
	MaxServers   = 64 // of all files together
)

// File is what one file declares.
type File struct {
	Tools   []Tool   `json:"tools"`
	Servers []Server `json:"servers"`
}

// Tool is a command, an HTTP endpoint or a WebAssembly module: one of them is set.
type Tool struct {
	tool.Declaration
	// Credentials are the names of environment variables of the worker whose values the tool gets with each call.
	Credentials []string `json:"credentials"`
	Command     *Command `json:"command"`
	HTTP        *HTTP    `json:"http"`
	Wasm        *Wasm    `json:"wasm"`
}

// Command is a program that runs once for each call, in the sandbox.
type Command struct {
	// Argv is the program and its arguments, in which {field} stands for a field of the input.
	Argv []string `json:"argv"`
	// Stdin is what the program reads: json, the whole input, or none. Empty: json when Argv has no placeholder, else
	// none.
	Stdin string `json:"stdin"`
	// Output says what it writes: text, or json, which becomes the structured output. Empty: text.
	Output string `json:"output"`
	// Env is the exact environment beside the sandbox's own few variables and those that say which call it is.
	Env map[string]string `json:"env"`
	// Network are the places that it may reach, as host:port. Empty: none.
	Network []string `json:"network"`
	// Read are directories and files of the machine that it may read beside the system's.
	Read   []string `json:"read"`
	Limits Limits   `json:"limits"`

	arguments
}

// Wasm is a module of WASI preview 1 that is run once for each call, in the worker and without any right but these.
type Wasm struct {
	// File is the module. A relative path begins at the manifest's directory.
	File string `json:"file"`
	// SHA256 is what the module must have, in hex. Empty: any.
	SHA256 string `json:"sha256"`
	// Args are its arguments, in which {field} stands for a field of the input. The program's name is the tool's.
	Args []string `json:"args"`
	// Stdin is what it reads: json, the whole input, or none. Empty: json when Args have no placeholder, else none.
	Stdin string `json:"stdin"`
	// Output says what it writes: text, or json, which becomes the structured output. Empty: text.
	Output string `json:"output"`
	// Env is its environment, beside the variables that say which call it is.
	Env map[string]string `json:"env"`
	// Read are directories of the machine that it may read, by the names that it has for them.
	Read   map[string]string `json:"read"`
	Limits WasmLimits        `json:"limits"`

	arguments
}

// WasmLimits bound a module. What is 0 has the default of package wasm.
type WasmLimits struct {
	MemoryMiB   int64 `json:"memory_mib"`
	Files       int   `json:"files"`
	OutputBytes int64 `json:"output_bytes"`
}

// Limits bound a command. What is 0 has the sandbox's default.
type Limits struct {
	MemoryMiB   int64 `json:"memory_mib"`
	CPUMS       int64 `json:"cpu_ms"`
	FileMiB     int64 `json:"file_mib"`
	ScratchMiB  int64 `json:"scratch_mib"`
	Processes   int   `json:"processes"`
	Files       int   `json:"files"`
	OutputBytes int64 `json:"output_bytes"`
}

// HTTP is a request that is made for each call.
type HTTP struct {
	// Method is GET, POST, PUT, PATCH or DELETE. Empty: POST.
	Method string `json:"method"`
	// URL has {field} only in segments of its path and values of its query.
	URL string `json:"url"`
	// Headers are sent along. ${NAME} in a value stands for a credential.
	Headers map[string]string `json:"headers"`
	// Body is json, the whole input, or none. Empty: json for POST, PUT and PATCH, else none.
	Body string `json:"body"`

	url      urlTemplate
	integers map[string]bool
}

// Server is an MCP server: one that the worker starts (Command), or one that is there (URL).
type Server struct {
	// Name is the part that its tools' names have in front: mcp__NAME__TOOL.
	Name string `json:"name"`
	// Command is the program and its arguments. It speaks MCP on its stdin and stdout, and has the worker's own rights.
	Command []string `json:"command"`
	// Dir is its working directory. Empty: the directory of the manifest.
	Dir string `json:"dir"`
	// Env is its environment, beside PATH, HOME and the like, and the credentials.
	Env map[string]string `json:"env"`
	// URL is where it speaks MCP over streamable HTTP.
	URL string `json:"url"`
	// Headers are sent along. ${NAME} in a value stands for a credential.
	Headers map[string]string `json:"headers"`
	// Credentials are the names of environment variables of the worker that the program gets.
	Credentials []string `json:"credentials"`
	// Trusted has the server's annotations believed. Otherwise every tool has the strictest flags.
	Trusted bool `json:"trusted"`
	// Elicitation lets the server's tools ask the session's person before they go on.
	Elicitation bool `json:"elicitation"`
	// Only are the tools to take, as the server names them. Empty: all.
	Only []string `json:"only"`
	// MaxTools is how many tools it may list; with more it has none. 0: [DefaultMaxTools].
	MaxTools int `json:"max_tools"`
	// MaxInFlight is how many calls run on it at a time, of each worker. They take none of the worker's slots. 0:
	// [DefaultMaxInFlight].
	MaxInFlight int `json:"max_in_flight"`
	// StartTimeoutMS bounds its start, up to the list of its tools, in milliseconds. 0: [DefaultStartTimeoutMS].
	StartTimeoutMS int64 `json:"start_timeout_ms"`
	// Defaults and Tools are what the operator says of all its tools and of single ones. They win over what the server
	// says.
	Defaults Override            `json:"defaults"`
	Tools    map[string]Override `json:"tools"`
}

// Defaults of [Server].
const (
	DefaultMaxTools       = 256
	DefaultMaxInFlight    = 8
	DefaultStartTimeoutMS = 30_000
)

// Override is some fields of a declaration.
type Override json.RawMessage

// UnmarshalJSON keeps the fields as they are: they have passed the schema.
func (o *Override) UnmarshalJSON(raw []byte) error {
	fields, err := plainClass(raw)
	*o = fields
	return err
}

// Apply puts the fields into a declaration. Fields that are left out stay as they were.
func (o Override) Apply(d *tool.Declaration) error {
	if len(o) == 0 {
		return nil
	}
	return json.Unmarshal(o, d)
}

// checkLocks says what is wrong with the locks among the fields, as far as that can be told without the input schema.
func (o Override) checkLocks() error {
	var d tool.Declaration
	if err := o.Apply(&d); err != nil {
		return err
	}
	for i, text := range d.Locks {
		if _, err := tool.ParseLockRule(text); err != nil {
			return fmt.Errorf("locks[%d]: %w", i, err)
		}
	}
	return nil
}

//go:embed schema.json
var fileSchema []byte

// compiled holds the schema of files.
var compiled schema.Cache

// Decode reads a file in JSON or YAML. The error names the key, and what to write instead.
func Decode(data []byte) (File, error) {
	var f File
	doc, err := toJSON(data)
	if err != nil {
		return f, err
	}
	s, err := compiled.Input(fileSchema)
	if err != nil {
		return f, fmt.Errorf("the schema of manifests: %w", err)
	}
	if err := s.Validate(doc); err != nil {
		return f, err
	}
	if err := json.Unmarshal(doc, &f); err != nil {
		return f, fmt.Errorf("read the manifest: %w", err)
	}
	return f, f.check()
}

// UnmarshalJSON reads a tool whose class may stand there as a word.
func (t *Tool) UnmarshalJSON(raw []byte) error {
	raw, err := plainClass(raw)
	if err != nil {
		return err
	}
	type bare Tool // without this method
	if err := json.Unmarshal(raw, (*bare)(t)); err != nil {
		return err
	}
	if t.AbortsSiblings == nil { // what reads beside others is worth as much without them
		t.AbortsSiblings = new(bool)
	}
	return nil
}

// plainClass turns a class that is a word into the rule that it is short for.
func plainClass(raw []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil, err
	}
	if class := fields["concurrency_class"]; len(class) > 0 && class[0] == '"' {
		fields["concurrency_class"] = json.RawMessage(`{"static":` + string(class) + `}`)
	}
	return json.Marshal(fields)
}
