package manifest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/tool"
)

const good = `
tools:
  - name: count_words
    description: Counts the words of a file in the workspace.
    concurrency_class: READ_ONLY
    is_read_only: true
    cache: {ttl_ms: 30000, coalesce: true}
    input_schema: {type: object, required: [path], properties: {path: {type: string}, fast: {type: boolean}}}
    command: {argv: [wc, -w, "--fast={fast}", --, "{path}"], env: {LC_ALL: C}}
  - name: weather
    description: The weather at a place.
    input_schema: {type: object, required: [city], properties: {city: {type: string}, units: {type: string}}}
    http:
      method: GET
      url: https://weather.example/v1/{city}/now?units={units}&fixed=a%20b
      headers: {Authorization: "Bearer ${WEATHER_KEY}"}
servers:
  - name: files
    command: [npx, some-server]
    tools:
      delete: {requires_user_interaction: true}
      list: {concurrency_class: READ_ONLY, is_read_only: true, cache: {ttl_ms: 1000, scope: workspace}}
`

func TestAFileIsRead(t *testing.T) {
	f, err := Decode([]byte(good))
	must.OK(t, err)
	count, weather, files := f.Tools[0], f.Tools[1], f.Servers[0]
	if count.Class.Static != toolyard.ReadOnly || !count.ReadOnly || count.Execution != tool.InSandbox ||
		count.Command.Stdin != "" {
		t.Errorf("the command is %+v", count)
	}
	if c := count.Cache; c == nil || *c != (tool.Cache{TTLMS: 30_000, Coalesce: true}) || weather.Cache != nil {
		t.Errorf("the caches are %+v and %+v", c, weather.Cache)
	}
	if weather.Execution != tool.InService || weather.HTTP.Body != "none" ||
		!slices.Equal(weather.Credentials, []string{"WEATHER_KEY"}) || weather.Class != (tool.ClassRule{}) {
		t.Errorf("the endpoint is %+v", weather)
	}
	d := tool.Declaration{Name: "x"}
	if err := files.Tools["list"].Apply(&d); err != nil || d.Class.Static != toolyard.ReadOnly || !d.ReadOnly ||
		d.Name != "x" || d.Cache == nil || *d.Cache != (tool.Cache{TTLMS: 1_000, Scope: tool.CacheWorkspace}) {
		t.Errorf("the override gives %+v, %v", d, err)
	}
	if files.MaxTools != DefaultMaxTools || files.MaxInFlight != DefaultMaxInFlight ||
		files.StartTimeoutMS != DefaultStartTimeoutMS {
		t.Errorf("the server is %+v", files)
	}
	asJSON, err := toJSON([]byte(good))
	must.OK(t, err)
	if again, err := Decode(asJSON); err != nil || len(again.Tools) != 2 || len(again.Servers) != 1 {
		t.Errorf("the same in JSON: %+v, %v", again, err)
	}
}

// TestSchemasAreAsWritten: with their fields in the order of the file, in which a model fills them in, and with numbers
// of any size.
func TestSchemasAreAsWritten(t *testing.T) {
	const want = `{"type":"object","required":["zeta"],"properties":{` +
		`"zeta":{"type":"string","enum":["b","a",null,true,1.5]},` +
		`"alpha":{"type":"integer","minimum":-9223372036854775809,"maximum":18446744073709551615},` +
		`"mid":{"const":340282366920938463463374607431768211456,"default":16}}}`
	yaml := "tools:\n- input_schema:\n    type: object\n    required: [zeta]\n    properties:\n" +
		"      zeta: {type: string, enum: [b, a, ~, true, 1.5]}\n" +
		"      alpha: {type: integer, minimum: -9223372036854775809, maximum: 18446744073709551615}\n" +
		"      mid: {const: 340282366920938463463374607431768211456, default: 0x10}\n" +
		"  name: x\n  description: d\n  command: {argv: [wc]}\n"
	for kind, text := range map[string]string{"YAML": yaml,
		"JSON": `{"tools":[{"name":"x","description":"d","command":{"argv":["wc"]},"input_schema":` + want + `}]}`} {
		f, err := Decode([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		} else if got := string(f.Tools[0].InputSchema); got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
	_, err := Decode([]byte(strings.Replace(yaml, "  name: x", "  timeout_ms: 18446744073709551615\n  name: x", 1)))
	if err == nil || !strings.Contains(err.Error(), "timeout_ms") {
		t.Errorf("a number that is too large for what it says: %v", err)
	}
}

// TestJSONIsRead: also with what JSON has and YAML has not.
func TestJSONIsRead(t *testing.T) {
	doc := "{\n\t\"tools\": [{\"name\": \"x\", \"description\": \"a\\/b \\ud83d\\ude00 \\\\ud83d \\\\\\uD83D\\uDE00 \\u007f \x7f\",\n" +
		"\t\"input_schema\":{\"type\":\"object\"},\"command\":{\"argv\":[\"wc\"]}}]}\n"
	f, err := Decode([]byte(doc))
	if err != nil || f.Tools[0].Description != "a/b \U0001F600 \\ud83d \\\U0001F600 \u007f \u007f" {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestWhatIsWrongIsNamed: each error has the key in it.
// TestAFailedCallEndsOthersWhereTheManifestSaysSo: what reads beside others is worth as much without them.
func TestAFailedCallEndsOthersWhereTheManifestSaysSo(t *testing.T) {
	for field, want := range map[string]bool{"": false, "\n    aborts_siblings: true": true,
		"\n    aborts_siblings: false": false} {
		f, err := Decode([]byte(strings.Replace(good, "\n    is_read_only: true", "\n    is_read_only: true"+field, 1)))
		must.OK(t, err)
		if got := f.Tools[0].FailureAbortsSiblings(); got != want {
			t.Errorf("%q: it aborts siblings: %v", field, got)
		}
	}
}

func TestWhatIsWrongIsNamed(t *testing.T) {
	shell := `{"tools":[{"name":"x","description":"d","input_schema":{"type":"object","properties":{"a":{"type":"string"}}},"command":`
	request := `{"tools":[{"name":"x","description":"d","input_schema":{"type":"object","required":["a"],"properties":{"a":{"type":"string"},"b":{"type":"string"}}},"http":`
	server := `{"servers":[{"name":"s",`
	module := strings.TrimSuffix(shell, `"command":`) + `"wasm":`
	for doc, want := range map[string]string{
		``:                                 "empty",
		`tools: [`:                         "YAML",
		`a: {b: 1}`:                        "a: unknown field",
		`tools: &a [*a]`:                   "nests deeper",
		"tools: []\ntools: []":             "",
		`{"tools":[{"nam":"x"}]}`:          `did you mean "name"`,
		shell + `{"argv":["{a}"]}}]}`:      "command.argv[0]: the program is not the model's",
		shell + `{"argv":["wc","{b}"]}}]}`: `{b} is no property`,
		shell +
			`{"argv":["wc"],"env":{"TOOLYARD_X":"1"}}}]}`: "command.env.TOOLYARD_X",
		shell + `{"argv":["wc"],"network":["example.com"]}}]}`: "host:port",
		shell +
			`{"argv":["wc"]},"http":{"url":"https://x"}}]}`: "exactly one of",
		shell + `{"argv":["wc"]},"output_schema":{"type":"object"}}]}`:                         "command.output",
		shell + `{"argv":["wc"]},"concurrency_class":"SAFE"}]}`:                                `"READ_ONLY"`,
		shell + `{"argv":["wc"]},"timeout_ms":0}]}`:                                            "timeout_ms",
		shell + `{"argv":["wc"]},"cache":{}}]}`:                                                "cache",
		shell + `{"argv":["wc"]},"cache":{"ttl_ms":0}}]}`:                                      "cache.ttl_ms",
		shell + `{"argv":["wc"]},"cache":{"ttl_ms":3600001}}]}`:                                "cache.ttl_ms",
		shell + `{"argv":["wc"]},"cache":{"ttl":"30s"}}]}`:                                     `"ttl_ms"`,
		shell + `{"argv":["wc"]},"cache":{"ttl_ms":1,"scope":"pool"}}]}`:                       `"workspace"`,
		strings.Replace(shell, `"x"`, `"mcp__a__b"`, 1) + `{"argv":["wc"]}}]}`:                 "MCP servers",
		strings.Replace(shell, `"type":"object"`, `"type":"string"`, 1) + `{"argv":["wc"]}}]}`: "input_schema",
		module + `{"file":"x"},"http":{"url":"https://x"}}]}`:                                  "exactly one of",
		module + `{}}]}`: "file",
		module + `{"file":"x","args":["{b}"]}}]}`:                    "wasm.args[0]",
		module + `{"file":"x"},"credentials":["K"]}]}`:               "gets none",
		module + `{"file":"x"},"concurrency_class":{"shell":"a"}}]}`: "concurrency_class.shell",
		module + `{"file":"x"},"output_schema":{"type":"object"}}]}`: "wasm.output",
		module + `{"file":"x","env":{"A":"\u0000"}}}]}`:              "wasm.env.A",
		module + `{"file":"x","read":{"data":"/d"}}}]}`:              "clean absolute path",
		module + `{"file":"x","read":{"/a/../b":"/d"}}}]}`:           "clean absolute path",
		module + `{"file":"x","read":{"/":"/d"}}}]}`:                 "/ is the workspace",
		module + `{"file":"x","read":{"/a":"d"}}}]}`:                 "read",
		module + `{"file":"x","limits":{"memory_mib":4097}}}]}`:      "memory_mib",
		module + `{"file":"x","network":["a:1"]}}]}`:                 "network",
		request + `{"url":"ftp://x/y"}}]}`:                           "http.url",
		request + `{"url":"https://{a}.example/"}}]}`:                "is not plain",
		request + `{"url":"https://user:pw@x/"}}]}`:                  "is not plain",
		request + `{"url":"https://x/{b}"}}]}`:                       "must require it",
		request +
			`{"url":"https://x/?{a}=1"}}]}`: "only values have places",
		request + `{"url":"https://x/","method":"GET","body":"json"}}]}`: "a GET has none",
		request + `{"url":"http://x/","headers":{"A":"${KEY}"}}}]}`:      "in the clear",
		request +
			`{"url":"https://x/","headers":{"Host":"y"}}}]}`: "is set for each request",
		request + `{"url":"https://x/","headers":{"A":"b\nc"}}}]}`:          "no header",
		request + `{"url":"https://x/","headers":{"X-A":"1","x-a":"2"}}}]}`: "http.headers.x-a: is the same header as X-A",
		shell + `{"argv":["wc"]},"specifier":{"path":"fiel"}}]}`:            `specifier.path: "fiel" is no property`,
		shell + `{"argv":["wc"]},"specifier":{"url":"b"}}]}`:                `specifier.url: "b" is no property`,
		shell + `{"argv":["wc"]},"specifier":{"command":"b"}}]}`:            `its properties are ["a"]`,
		shell + `{"argv":["wc"]},"concurrency_class":{"shell":"b"}}]}`:      `concurrency_class.shell: "b" is no property`,
		"tools: []\n---\ntools: []\n":                                       "more than one document",
		server + `"command":["x"],"url":"https://y"}]}`:                     "either command or url",
		server +
			`"url":"https://y/{a}"}]}`: "a server's address is fixed",
		server + `"url":"https://y","env":{"A":"b"}}]}`:                "env and dir",
		server + `"command":["x"],"only":["a"],"tools":{"b":{}}}]}`:    "tools.b",
		server + `"command":["x"],"tools":{"b":{"locks":["Db"]}}}]}`:   "tools.b.locks[0]",
		server + `"command":["x"],"defaults":{"locks":["a","{b}"]}}]}`: "defaults.locks[1]",
		server + `"command":["x"],"defaults":{"locks":"a"}}]}`:         "defaults.locks",
		server + `"command":["x"],"tools":{"b":{"locks":[` +
			strings.Repeat(`"a",`, 8) + `"a"]}}}]}`: "tools.b.locks",
		`{"servers":[{"name":"a__b","command":["x"]}]}`:                           "name",
		`{"servers":[{"name":"a","command":["x"]},{"name":"a","command":["x"]}]}`: "two servers",
	} {
		_, err := Decode([]byte(doc))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n  got the error %v, want one about %q", doc, err, want)
		}
	}
}

func command(t *testing.T, argv ...string) *Command {
	t.Helper()
	raw := must.JSON(t, argv)
	f, err := Decode([]byte(`{"tools":[{"name":"x","description":"d","command":{"argv":` + string(raw) + `},
		"input_schema":{"type":"object","properties":{"a":{"type":"string"},"n":{"type":"integer"},"l":{"type":"array"}}}}]}`))
	must.OK(t, err)
	return f.Tools[0].Command
}

// TestAFieldIsOneArgument: whatever a value holds, it stays in its place.
func TestAFieldIsOneArgument(t *testing.T) {
	for _, c := range []struct {
		argv  []string
		input string
		want  []string
	}{
		{[]string{"p", "{a}"}, `{"a":"x; rm -rf / $(id) \" ' \n {n}"}`, []string{"p", "x; rm -rf / $(id) \" ' \n {n}"}},
		{[]string{"p", "-n={n}", "{a}"}, `{"n":5}`, []string{"p", "-n=5"}},
		{[]string{"p", "--", "{a}"}, `{"a":"-rf"}`, []string{"p", "--", "-rf"}},
		{[]string{"p", "--a={a}"}, `{"a":"-rf"}`, []string{"p", "--a=-rf"}},
		{[]string{"p", "--n={n}", "--", "{n}"}, `{"n":-5}`, []string{"p", "--n=-5", "--", "-5"}},
		{[]string{"p", "{l}"}, `{"l":[1,"b"]}`, []string{"p", `[1,"b"]`}},
		{[]string{"p", "{print $1}", "{{a}}"}, `{"a":"x"}`, []string{"p", "{print $1}", "{a}"}},
		{[]string{"p", "{a}"}, `{"a":""}`, []string{"p", ""}},
		{[]string{"p", "{a}", "z"}, `{"a":null}`, []string{"p", "z"}},
	} {
		got, err := command(t, c.argv...).Arguments(json.RawMessage(c.input))
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q with %s: %q, %v; want %q", c.argv, c.input, got, err, c.want)
		}
	}
	for _, input := range []string{`{"a":"-rf"}`, `{"a":"x\u0000y"}`} {
		if got, err := command(t, "p",
			"{a}").Arguments(json.RawMessage(input)); tool.AsError(err).Code != toolyard.InvalidArguments {
			t.Errorf("%s: %q, %v; want invalid_arguments", input, got, err)
		}
	}
}

// TestNoValueBecomesAnOption: whatever its type, and also when it is put together from several fields.
func TestNoValueBecomesAnOption(t *testing.T) {
	for _, c := range []struct {
		argv  []string
		input string
	}{
		{[]string{"p", "{n}"}, `{"n":-5}`},
		{[]string{"p", "{n}"}, `{"n":-0.5e3}`},
		{[]string{"p", "{a}{n}"}, `{"a":"-","n":5}`},
		{[]string{"p", "{a}{n}"}, `{"a":"","n":-5}`},
		{[]string{"p", "{a}=x"}, `{"a":"--output"}`},
		{[]string{"p", "{a}{a}", "{n}"}, `{"a":"-","n":-5}`},
	} {
		if got, err := command(t, c.argv...).Arguments(json.RawMessage(c.input)); err == nil ||
			tool.AsError(err).Code != toolyard.InvalidArguments {
			t.Errorf("%q with %s: %q, %v; want invalid_arguments", c.argv, c.input, got, err)
		}
	}
}

func endpoint(t *testing.T, address string) *HTTP {
	t.Helper()
	f, err := Decode([]byte(`{"tools":[{"name":"x","description":"d","http":{"url":"` + address + `"},
		"input_schema":{"type":"object","required":["a"],"properties":{"a":{"type":"string"},"b":{"type":"string"}}}}]}`))
	must.OK(t, err)
	return f.Tools[0].HTTP
}

// TestAFieldStaysInItsPlaceOfAnAddress: no value adds a segment, a parameter or a host.
func TestAFieldStaysInItsPlaceOfAnAddress(t *testing.T) {
	h := endpoint(t, "https://x.example:8443/v1/{a}/end%2Fof?q={b}&k=v")
	for input, want := range map[string]string{
		`{"a":"plain"}`:                      "https://x.example:8443/v1/plain/end%2Fof?k=v",
		`{"a":"..etc?x=1#f","b":"../1&k=w"}`: "https://x.example:8443/v1/..etc%3Fx=1%23f/end%2Fof?q=..%2F1%26k%3Dw&k=v",
		`{"a":"@evil.example:ü%","b":""}`:    "https://x.example:8443/v1/@evil.example:%C3%BC%25/end%2Fof?q=&k=v",
	} {
		got, err := h.Address(json.RawMessage(input))
		if err != nil || got.String() != want {
			t.Errorf("%s: %v, %v; want %s", input, got, err, want)
		}
	}
	for _, input := range []string{`{"a":".."}`, `{"a":"."}`, `{"a":""}`, `{}`, `[]`} {
		if got, err := h.Address(json.RawMessage(input)); tool.AsError(err).Code != toolyard.InvalidArguments {
			t.Errorf("%s: %v, %v; want invalid_arguments", input, got, err)
		}
	}
	if got, err := endpoint(t, "https://x.example").Address(json.RawMessage(`{"a":"b"}`)); err != nil ||
		got.String() != "https://x.example/" {
		t.Errorf("an address without a path: %v, %v", got, err)
	}
}

// TestThePathOfAnAddressIsAsWritten: what separates the parts of a segment, for the services that have such, does so
// only as it is. In a value it is escaped.
func TestThePathOfAnAddressIsAsWritten(t *testing.T) {
	for written, want := range map[string]string{
		"/Products({a})/*;v=1,2/!'+$&=:@": "/Products(x;y)/*;v=1,2/!'+$&=:@",
		"/a%3Bb/%28{a}%29/%2c":            "/a%3Bb/%28x;y%29/%2c",
		"/ü {/</[{{a}}]|{a}":              "/%C3%BC%20%7B/%3C/%5B%7Ba%7D%5D%7Cx;y",
		"/%7Ba%7D":                        "/x;y",
	} {
		text := "https://x.example" + written
		want = "https://x.example" + strings.ReplaceAll(want, "x;y", "x%3By%28%2C")
		got, err := endpoint(t, text).Address(json.RawMessage(`{"a":"x;y(,"}`))
		if err != nil || got.String() != want {
			t.Errorf("%s: %v, %v; want %s", text, got, err, want)
		}
	}
}

// TestNoValueIsAnEncodedSlashInAnAddress: many servers decode a path before they take it apart, some of them twice.
func TestNoValueIsAnEncodedSlashInAnAddress(t *testing.T) {
	h := endpoint(t, "https://x.example/v1/{a}/end")
	for _, a := range []string{"x/y", "../x", "x%2Fy", "x%2fy", "x%252Fy", "x%25252fy", `x\\y`, "x%5cy", "%2e%2e",
		"%2E", ".%2e", "..;x", "%2e%2e%3bx", "x%00", "x\\n", "x\\r"} {
		if got, err := h.Address(json.RawMessage(`{"a":"` + a + `"}`)); err == nil ||
			tool.AsError(err).Code != toolyard.InvalidArguments {
			t.Errorf("%s: %v, %v; want invalid_arguments", a, got, err)
		}
	}
	if got, err := endpoint(t, "https://x.example/group%2F{a}").Address(json.RawMessage(`{"a":"b"}`)); err != nil ||
		got.String() != "https://x.example/group%2Fb" {
		t.Errorf("the operator's own slash: %v, %v", got, err)
	}
	if got, err := endpoint(t, "https://x.example/%25{a}").Address(json.RawMessage(`{"a":"2fb"}`)); err == nil ||
		tool.AsError(err).Code != toolyard.InvalidArguments {
		t.Errorf("a slash of the operator's percent sign and a value: %v, %v", got, err)
	}
	for _, a := range []string{"x.y", "100%", "%", "%zz", "a;b", "..."} {
		if got, err := h.Address(json.RawMessage(`{"a":"` + a + `"}`)); err != nil {
			t.Errorf("%s: %v, %v; want an address", a, got, err)
		}
	}
}

func TestCredentialsInHeaders(t *testing.T) {
	got, err := FillHeaders(map[string]string{"Authorization": "Bearer ${KEY}", "X": "$KEY"},
		func(name string) (string, error) { return "<" + name + ">", nil })
	if err != nil || got["Authorization"] != "Bearer <KEY>" || got["X"] != "$KEY" {
		t.Errorf("%v, %v", got, err)
	}
	_, err = FillHeaders(map[string]string{"A": "${KEY}"},
		func(name string) (string, error) { return "", tool.SetupRequired("no %s", name) })
	if tool.AsError(err).Code != toolyard.SetupRequired {
		t.Errorf("a credential that is not there: %v", err)
	}
}

// FuzzDecode: whatever a file holds, it is read or refused, and what is read can be used with any input.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(good), []byte(`{"path":"a","city":"b"}`))
	f.Add([]byte(`{"tools":[{"name":"x","description":"d","input_schema":{"type":"object"},"http":{"url":"https://a/b?c=d"}}]}`), []byte(`{}`))
	f.Add([]byte("a: &a [*a, *a]\nb: !!binary x\n? [x]\n: y"), []byte(`[1]`))
	f.Add([]byte(`{"tools":[{"name":"x","description":"d","input_schema":{"type":"object","properties":{"a":{}}},"wasm":{"file":"x","args":["{a}"],"read":{"/d":"/e"}}}]}`), []byte(`{"a":1}`))
	f.Add([]byte(strings.Replace(good, "coalesce: true", "scope: workspace", 1)), []byte(`{}`))
	f.Fuzz(func(t *testing.T, data, input []byte) {
		file, err := Decode(data)
		if err != nil {
			return
		}
		for _, d := range file.Tools {
			if c := d.Cache; c != nil && (c.TTL() < 0 || c.TTL() > tool.MaxCacheTTL || !c.Scope.Known()) {
				t.Errorf("the cache of %q is %+v", d.Name, c)
			}
			if d.Command != nil {
				args, err := d.Command.Arguments(input)
				if err == nil && (len(args) == 0 || args[0] != d.Command.Argv[0] &&
					!strings.Contains(d.Command.Argv[0], "{{")) {
					t.Errorf("the program of %q is %q", d.Command.Argv, args)
				}
				continue
			}
			if d.Wasm != nil {
				if args, err := d.Wasm.Arguments(input); err == nil && len(args) > len(d.Wasm.Args) {
					t.Errorf("%q became %q", d.Wasm.Args, args)
				}
				continue
			}
			u, err := d.HTTP.Address(input)
			if err == nil && (u.Scheme+"://"+u.Host != d.HTTP.url.base.String() ||
				strings.Count(u.EscapedPath(), "/") != len(d.HTTP.url.segments)) {
				t.Errorf("%q became %q", d.HTTP.URL, u)
			}
		}
	})
}

// TestWholeNumbersAreWrittenAsIntegers: a program is not told 10.0 where it takes 10.
func TestWholeNumbersAreWrittenAsIntegers(t *testing.T) {
	f, err := Decode([]byte(`{"tools":[
		{"name":"c","description":"d","input_schema":{"type":"object","properties":{"n":{"type":"integer"},"f":{"type":"number"}}},"command":{"argv":["head","-n","{n}","{f}"]}},
		{"name":"h","description":"d","input_schema":{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}},"http":{"url":"https://a.example/{n}"}}]}`))
	must.OK(t, err)
	args, err := f.Tools[0].Command.Arguments(json.RawMessage(`{"n":10.0,"f":2.0}`))
	if err != nil || !slices.Equal(args, []string{"head", "-n", "10", "2.0"}) {
		t.Errorf("%q, %v", args, err)
	}
	if u, err := f.Tools[1].HTTP.Address(json.RawMessage(`{"n":1e1}`)); err != nil ||
		u.String() != "https://a.example/10" {
		t.Errorf("%v, %v", u, err)
	}
}

// TestACommandLineIsRunByBash: a class that is judged for each command line is judged as Bash reads it.
func TestACommandLineIsRunByBash(t *testing.T) {
	for argv, fits := range map[string]bool{
		`["bash","-c","{a}"]`: true, `["/usr/bin/bash","-c","{a}"]`: true, `["timeout","5","bash","-c","{a}"]`: true,
		`["./run","{a}"]`: true, `["sh","-c","exec bash -c \"$1\"","sh","{a}"]`: false, `["dash","-c","{a}"]`: false,
		`["fish","-c","{a}"]`: false, `["env","zsh","-c","{a}"]`: false,
		`["/bin/busybox","ash","-c","{a}"]`: false,
	} {
		_, err := Decode([]byte(`{"tools":[{"name":"x","description":"d","concurrency_class":{"shell":"a"},` +
			`"input_schema":{"type":"object","required":["a"],"properties":{"a":{"type":"string"}}},` +
			`"command":{"argv":` + argv + `}}]}`))
		if fits != (err == nil) {
			t.Errorf("%s: %v", argv, err)
		}
	}
}
