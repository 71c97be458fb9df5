package natsbroker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
)

// layout is the version of the streams: what they are called, which subjects they have and how they keep them. Whoever
// changes a definition raises it, and adds a line.
//
//	0  2026-11-21  It is not written down.
//	1  2026-11-22  No bucket allows direct gets: keys that decide are read through their leaders. The marks of calls that were
//	               decided expire. It is written down.
const layout = 1

// The keys of the streams' metadata. Every stream and bucket says which version made it, and the batch stream more than
// that.
const (
	metadataWire      = "toolyard.wire_version" // of who made the stream
	metadataVersion   = "toolyard.version"      // the same, for people
	metadataSettings  = "toolyard.settings"
	metadataMinReader = "toolyard.min_reader" // the wire version that whoever joins must have at least
	metadataLayout    = "toolyard.layout"
)

// madeBy is the metadata of a stream that this build makes.
func madeBy() map[string]string {
	return map[string]string{metadataWire: strconv.Itoa(toolyard.WireVersion), metadataVersion: toolyard.Build()}
}

// minReaderOf is the wire version that whoever joins a system with these settings must have at least. A setting that
// was added later, and that not everybody may pass over, needs the version that knows it wherever it is not at its
// default.
func minReaderOf(broker.Settings) int { return 1 }

// metadataOf is that of the batch stream.
func metadataOf(s broker.Settings) (map[string]string, error) {
	written, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("encode the settings: %w", err)
	}
	m := madeBy()
	m[metadataSettings], m[metadataLayout] = string(written), strconv.Itoa(layout)
	m[metadataMinReader] = strconv.Itoa(minReaderOf(s))
	return m, nil
}

// origin is what the batch stream's metadata say of a system.
type origin struct {
	settings broker.Settings
	layout   int
}

// readOrigin reads a system's origin. It fails, in one line that says what to do, when this version must not join the
// system.
func readOrigin(m map[string]string) (o origin, err error) {
	written, ok := m[metadataSettings]
	if !ok {
		return o, fmt.Errorf("stream %s has no settings of Toolyard: it was made by a version before 2026-11-21, "+
			"or by something else; use an empty store (another --data, or delete the streams)", streamBatch)
	}
	var minReader int
	for key, to := range map[string]*int{metadataMinReader: &minReader, metadataLayout: &o.layout} {
		if text, ok := m[key]; ok {
			if *to, err = strconv.Atoi(text); err != nil {
				return o, fmt.Errorf("the metadata of stream %s: %s is %q, which is no number", streamBatch, key, text)
			}
		}
	}
	newer := func(why string) error {
		return fmt.Errorf("%w: this NATS system was made by Toolyard %s (wire version %s), and %s; "+
			"this is %s (wire version %d): use that version or a later one", events.ErrNewer,
			orUnknown(m[metadataVersion]), orUnknown(m[metadataWire]), why, toolyard.Build(), toolyard.WireVersion)
	}
	if minReader > toolyard.WireVersion {
		return o, newer(fmt.Sprintf("needs wire version %d", minReader))
	}
	if o.settings, err = readSettings(written, minReader != 0); errors.Is(err, errUnknownSetting) {
		return o, newer(err.Error())
	}
	if err == nil {
		err = o.settings.Check()
	}
	if err != nil {
		return o, fmt.Errorf("the settings written down in stream %s: %w", streamBatch, err)
	}
	return o, nil
}

func orUnknown(s string) string {
	if s == "" {
		return "(unknown)"
	}
	return s
}

var errUnknownSetting = errors.New("has a setting that this version does not know")

// readSettings reads settings as some version wrote them. A field that it did not know has the value by which it
// worked. One that this version does not know wraps [errUnknownSetting], unless the writer has said that it may be
// passed over.
func readSettings(written string, passOver bool) (s broker.Settings, err error) {
	d := json.NewDecoder(bytes.NewReader([]byte(written)))
	if !passOver {
		d.DisallowUnknownFields()
	}
	if err = d.Decode(&s); err != nil && !passOver && json.Unmarshal([]byte(written), new(broker.Settings)) == nil {
		return s, fmt.Errorf("%w (%w)", errUnknownSetting, err)
	}
	return grown(s), err
}

// grown fills in the fields that the writer of settings did not know, with what its version did. That is what a new
// system gets for all fields of today; where a default changes, or a new field's default is not what was done before,
// it gets a line here.
func grown(s broker.Settings) broker.Settings { return s.WithDefaults() }
