package natsbroker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/version"
)

// layout is the version of the streams: what they are called, which subjects they have and how they keep them. Whoever
// changes a definition raises it, and adds a line.
//
//	0  2026-11-21  It is not written down.
//	1  2026-11-22  No bucket allows direct gets: keys that decide are read through their leaders. The marks of calls that were
//	               decided expire. It is written down.
//	2  2026-11-23  Streams and buckets with one replica allow direct gets. Without them they are read as before.
const layout = 2

// The keys of the streams' metadata. Every stream and bucket has the version that created it; the batch stream has
// more.
const (
	metadataWire      = "toolyard.wire_version" // of the creator of the stream
	metadataVersion   = "toolyard.version"      // the same, for people
	metadataSettings  = "toolyard.settings"
	metadataMinReader = "toolyard.min_reader" // the wire version that whoever joins must have at least
	metadataLayout    = "toolyard.layout"
)

// madeBy is the metadata of a stream that this build creates.
func madeBy() map[string]string {
	return map[string]string{metadataWire: strconv.Itoa(version.Wire), metadataVersion: version.Build()}
}

// minReaderOf is the minimum wire version of a process that joins a system with these settings. A setting that was
// added later, and that must not be ignored, requires the version that knows it unless it has its default.
func minReaderOf(s broker.Settings) int {
	if s.ShardCount() > 1 {
		return version.Shards
	}
	return 1
}

// metadataOf is the metadata of the batch stream.
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

// origin is what the batch stream's metadata says about a system.
type origin struct {
	settings broker.Settings
	layout   int
	// minReader is the wire version that whoever joins must have at least; 0 if that is not written down.
	minReader int
	// raised says that there is a map of shards.
	raised bool
}

// readOrigin reads a system's origin. If this version must not join the system, it fails with one line that says what
// to do.
func readOrigin(m map[string]string) (o origin, err error) {
	written, ok := m[metadataSettings]
	if !ok {
		return o, fmt.Errorf("stream %s has no settings of Toolyard: it was made by a version before 2026-11-21, "+
			"or by something else; use an empty store (another --data, or delete the streams)", streamBatch)
	}
	_, o.raised = m[metadataRaised]
	for key, to := range map[string]*int{metadataMinReader: &o.minReader, metadataLayout: &o.layout} {
		if text, ok := m[key]; ok {
			if *to, err = strconv.Atoi(text); err != nil {
				return o, fmt.Errorf("the metadata of stream %s: %s is %q, which is no number", streamBatch, key, text)
			}
		}
	}
	newer := func(why string) error {
		return fmt.Errorf("%w: this NATS system was made by Toolyard %s (wire version %s), and %s; "+
			"this is %s (wire version %d): use that version or a later one", events.ErrNewer,
			orUnknown(m[metadataVersion]), orUnknown(m[metadataWire]), why, version.Build(), version.Wire)
	}
	if o.minReader > version.Wire {
		return o, newer(fmt.Sprintf("needs wire version %d", o.minReader))
	}
	if o.settings, err = readSettings(written, o.minReader != 0); errors.Is(err, errUnknownSetting) {
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

// readSettings reads settings that any version wrote. A field that the writer did not know has the value by which the
// writer worked. A field that this version does not know wraps [errUnknownSetting], unless the writer says that it may
// be ignored.
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

// grown sets the fields that the writer of settings did not know to the behaviour of the writer's version. For all
// fields of today that is the default. If a default changes, or a new field's default differs from the former
// behaviour, add a line here.
func grown(s broker.Settings) broker.Settings { return s.WithDefaults() }
