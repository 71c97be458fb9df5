package events

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Event is a CloudEvent of version 1.0, with JSON as its data. The official SDK is the oracle of the tests and is not
// linked: it brings a JSON and an XML codec, and reflection that keeps the linker from leaving anything out.
type Event struct {
	ID, Source, Type string
	// Subject is empty, and Time zero, when there is none.
	Subject string
	Time    time.Time
	// ContentType is the data's; empty means JSON.
	ContentType string
	// Extensions are the further attributes by their names in lower case.
	Extensions map[string]string
	// Data is nil when there is none.
	Data json.RawMessage
}

// JSONContentType is the content type of the data of every event that we write.
const JSONContentType = "application/json"

const (
	specVersion     = "1.0"
	headerPrefix    = "ce-"
	headerDataType  = "content-type" // what the binding allows instead of ce-datacontenttype
	headerVersion   = headerPrefix + "specversion"
	fieldData       = "data"
	fieldDataBase64 = "data_base64"
)

// Extend sets an extension.
func (e *Event) Extend(name, value string) {
	if e.Extensions == nil {
		e.Extensions = map[string]string{}
	}
	e.Extensions[name] = value
}

// Validate reports what CloudEvents demands and the event has not.
func (e *Event) Validate() error {
	for _, a := range []struct{ name, value string }{{"id", e.ID}, {"source", e.Source}, {"type", e.Type}} {
		if strings.TrimSpace(a.value) == "" {
			return fmt.Errorf("%s: is required", a.name)
		}
	}
	if e.ContentType != "" {
		if _, _, err := mime.ParseMediaType(e.ContentType); err != nil {
			return fmt.Errorf("datacontenttype: %w", err)
		}
	}
	for name := range e.Extensions {
		if err := checkExtension(name); err != nil {
			return err
		}
	}
	return nil
}

func checkExtension(name string) error {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return fmt.Errorf("the attribute name %q has other characters than a to z and 0 to 9", name)
		}
	}
	if name == "" {
		return errors.New("an attribute has no name")
	}
	return nil
}

// attributes are what stands around the data, without the version, in the order in which structured mode has them.
func (e *Event) attributes() []struct{ name, value string } {
	list := []struct{ name, value string }{
		{"id", e.ID}, {"source", e.Source}, {"type", e.Type}, {"subject", e.Subject}, {"datacontenttype", e.ContentType},
	}
	if !e.Time.IsZero() {
		list = append(list, struct{ name, value string }{"time", e.Time.UTC().Format(time.RFC3339Nano)})
	}
	return slices.DeleteFunc(list, func(a struct{ name, value string }) bool { return a.value == "" })
}

// set sets an attribute from its text.
func (e *Event) set(name, value string) error {
	value = strings.TrimSpace(value)
	switch name = strings.ToLower(name); name {
	case "id":
		e.ID = value
	case "source":
		u, err := url.Parse(value)
		if err != nil {
			return fmt.Errorf("source: %w", err)
		}
		e.Source = u.String()
	case "type":
		e.Type = value
	case "subject":
		e.Subject = value
	case "datacontenttype":
		e.ContentType = value
	case "time":
		t, err := time.Parse(time.RFC3339Nano, value)
		if err != nil {
			return fmt.Errorf("time: %q is no RFC 3339 time", value)
		}
		e.Time = t
	case "dataschema": // says nothing that we read
	case "specversion":
		if value != specVersion {
			return fmt.Errorf("specversion: want %s, got %q", specVersion, value)
		}
	default:
		if err := checkExtension(name); err != nil {
			return err
		}
		e.Extend(name, value)
	}
	return nil
}

// Header is the event without its data in the binary mode of the NATS binding.
func (e *Event) Header() map[string][]string {
	h := map[string][]string{headerVersion: {specVersion}}
	for _, a := range e.attributes() {
		h[headerPrefix+a.name] = []string{a.value}
	}
	for name, value := range e.Extensions {
		h[headerPrefix+name] = []string{value}
	}
	return h
}

// FromHeader reads an event in the binary mode of the NATS binding. What cannot be read is an [*UnreadableError].
func FromHeader(h map[string][]string, data []byte) (Event, error) {
	e := Event{Data: data}
	if v := h[headerVersion]; len(v) == 0 || v[0] == "" {
		return e, &UnreadableError{Problem: "the message has no CloudEvents headers; use the binary binding"}
	}
	var problems []string
	for name, values := range h {
		if len(values) == 0 {
			continue
		}
		if name == headerDataType {
			name = headerPrefix + "datacontenttype"
		}
		if attribute, ok := strings.CutPrefix(name, headerPrefix); ok {
			if err := e.set(attribute, values[0]); err != nil {
				problems = append(problems, err.Error())
			}
		}
	}
	if len(problems) > 0 {
		slices.Sort(problems)
		return e, &UnreadableError{Type: e.Type, ID: e.ID, Problem: "not a CloudEvent: " + strings.Join(problems, "; ")}
	}
	return e, nil
}

// MarshalJSON writes the event in structured mode.
func (e Event) MarshalJSON() ([]byte, error) {
	out := []byte(`{"specversion":"` + specVersion + `"`)
	add := func(name, value string) error {
		key, err := json.Marshal(name)
		if err != nil {
			return err
		}
		text, err := json.Marshal(value)
		out = append(append(append(append(out, ','), key...), ':'), text...)
		return err
	}
	for _, a := range e.attributes() {
		if err := add(a.name, a.value); err != nil {
			return nil, fmt.Errorf("write the attribute %s: %w", a.name, err)
		}
	}
	if e.Data != nil {
		out = append(append(out, `,"`+fieldData+`":`...), e.Data...)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Extensions)) {
		if err := add(name, e.Extensions[name]); err != nil {
			return nil, fmt.Errorf("write the extension %s: %w", name, err)
		}
	}
	return append(out, '}'), nil
}

// UnmarshalJSON reads an event in structured mode, whose data must be JSON.
func (e *Event) UnmarshalJSON(text []byte) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	*e = Event{Data: fields[fieldData]}
	if fields["specversion"] == nil {
		return errors.New("specversion: is required")
	}
	if coded, ok := fields[fieldDataBase64]; ok {
		var encoded string
		if err := json.Unmarshal(coded, &encoded); err != nil {
			return fmt.Errorf("%s: %w", fieldDataBase64, err)
		}
		data, err := base64.StdEncoding.DecodeString(encoded)
		if err != nil {
			return fmt.Errorf("%s: %w", fieldDataBase64, err)
		}
		e.Data = data
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name == fieldData || name == fieldDataBase64 {
			continue
		}
		value, err := attributeText(fields[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if value == "" {
			continue // as if it were not there
		}
		if err := e.set(name, value); err != nil {
			return err
		}
	}
	return nil
}

// attributeText is an attribute of structured mode as binary mode has it: a string, a whole number or a truth value.
func attributeText(raw json.RawMessage) (string, error) {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		return "", err
	}
	switch v := value.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case float64:
		if n := int32(v); float64(n) == v {
			return strconv.Itoa(int(n)), nil
		}
	}
	return "", errors.New("is no value of an attribute")
}
