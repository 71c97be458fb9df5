package strictjson

import (
	"bytes"
	"encoding/json"

	"github.com/toolyard/toolyard"
)

// Echo returns those of the named fields that are given, unchanged, in the order of their names. It is nil if none is.
func (o Object) Echo(names ...string) (toolyard.Echo, error) {
	fields := map[string]json.RawMessage{}
	for _, name := range names {
		if o.Given(name) {
			fields[name] = o.fields[name]
		}
	}
	if len(fields) == 0 {
		return nil, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(fields); err != nil {
		return nil, Errorf(o.Path(), "is not JSON: %v", err)
	}
	echo := toolyard.Echo(bytes.TrimSpace(b.Bytes()))
	return echo, toolyard.CheckEcho(o.Path(), echo)
}
