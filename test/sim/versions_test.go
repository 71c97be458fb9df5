package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/batch"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/version"
	"github.com/toolyard/toolyard/test/faults/ledger"
	"github.com/toolyard/toolyard/test/verdict"
)

// versions makes some parties those of the next version. Their code is today's: what they write names the next wire
// version on its way to the server, and what names it on its way to them names today's. They write what today's version
// must not act on: the plans of some batches, and calls that need a claim. So do the builds of tag nextversion.
type versions struct {
	seed uint64
	next map[string]bool // by machine

	mu sync.Mutex
	// only are the batches that only the next version may take on, by the subject of their plan.
	only map[string]bool
}

// The headers of an event that say who may read it.
const (
	headerVersion   = "ce-tyversion: "
	headerMinReader = "ce-tyminreader: "
	headerType      = "ce-type: "
)

var (
	today    = strconv.Itoa(version.Wire)
	tomorrow = strconv.Itoa(version.Wire + 1)
)

// isNext reports whether a party is of the next version.
func (v *versions) isNext(party string) bool {
	machine, _, _ := strings.Cut(party, ".")
	return v.next[machine]
}

// lens is that of [membroker.Options].
func (v *versions) lens(party string, sent bool, subject string, hdr, data []byte) ([]byte, []byte) {
	switch {
	case !v.isNext(party):
		return hdr, data
	case sent:
		return v.write(subject, hdr, data), data
	case bytes.Contains(data, []byte(server.JSApiMsgGetResponseType)):
		return hdr, read(data)
	}
	return asToday(hdr), data
}

// write makes an event one of the next version.
func (v *versions) write(subject string, hdr, data []byte) []byte {
	if !bytes.Contains(hdr, []byte(headerVersion+today+"\r\n")) {
		return hdr
	}
	hdr = bytes.Replace(hdr, []byte(headerVersion+today), []byte(headerVersion+tomorrow), 1)
	is := func(t events.Type) bool { return bytes.Contains(hdr, []byte(headerType+string(t)+"\r\n")) }
	only := is(events.BatchPlanned) && (v.seed+hashOf(subject))%2 == 0
	if only {
		v.mu.Lock()
		v.only[subject] = true
		v.mu.Unlock()
	}
	if only || is(events.CallsRequested) && bytes.Contains(data, []byte(`"claim":true`)) {
		end := len(hdr) - len("\r\n")
		hdr = fmt.Appendf(bytes.Clone(withoutMinReader(hdr[:end])), "%s%s\r\n\r\n", headerMinReader, tomorrow)
	}
	return hdr
}

// asToday makes headers of the next version today's.
func asToday(hdr []byte) []byte {
	if !bytes.Contains(hdr, []byte(headerVersion+tomorrow+"\r\n")) {
		return hdr
	}
	hdr = bytes.Replace(hdr, []byte(headerVersion+tomorrow), []byte(headerVersion+today), 1)
	return withoutMinReader(hdr)
}

func withoutMinReader(hdr []byte) []byte {
	before, rest, found := bytes.Cut(hdr, []byte(headerMinReader))
	if !found {
		return hdr
	}
	_, after, _ := bytes.Cut(rest, []byte("\r\n"))
	return append(bytes.Clone(before), after...)
}

// read makes the message in an answer to a read today's.
func read(data []byte) []byte {
	var answer server.JSApiMsgGetResponse
	if err := json.Unmarshal(data, &answer); err != nil || answer.Message == nil {
		return data
	}
	answer.Message.Header = asToday(answer.Message.Header)
	return raw(answer)
}

// isOnly reports whether a batch is for the next version only: a plan of that version is stored, and says so.
func (v *versions) isOnly(k toolyard.BatchKey, rec *verdict.Batch) bool {
	return v.only[fmt.Sprintf("ty.event.%s.%s._.batch", k.Agent, k.ID)] &&
		slices.ContainsFunc(rec.Log, func(e broker.Logged) bool {
			_, plan := e.Body.(events.Planned)
			return plan && v.isNext(strings.TrimPrefix(e.Meta.Source, "/dispatcher/"))
		})
}

// checkVersions: a batch that only the next version may take on is owned by dispatchers of that version, and none of
// its calls that need a claim is begun by another worker.
func (w *world) checkVersions(h *verdict.History) {
	names := map[int]string{}
	for name, id := range h.Processes {
		names[id] = name
	}
	for k, rec := range h.Batches {
		if !w.versions.isOnly(k, rec) {
			continue
		}
		for _, e := range rec.Log {
			owner, is := strings.CutPrefix(e.Meta.Source, "/dispatcher/")
			if is && e.Chain == batch.ChainBatch && !w.versions.isNext(owner) {
				w.fail("versions", "%s has written %s of %s, which is not for its version", owner,
					e.Body.EventType(), k)
			}
		}
		for _, l := range h.Ledger {
			if l.Kind == ledger.Begin && l.Key() == k && claims(h, k, l.Index) && !w.versions.isNext(names[l.Worker]) {
				w.fail("versions", "%s begins %s/%d, which is not for its version", names[l.Worker], k, l.Index)
			}
		}
	}
}
