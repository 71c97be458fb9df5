package dispatchercmd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/events"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestWhatAGapHasHidden: where events of the feed are lost, watch --all --json prints what is stored of the batches
// that it has begun and not seen the end of, each event once and in its place.
func TestWhatAGapHasHidden(t *testing.T) {
	seen := map[string]string{}
	log := func(id string, bodies ...events.Body) (ids []string) {
		for i, b := range bodies {
			e, err := events.Encode(events.Meta{ID: fmt.Sprint(id, i), Source: "/test", Subject: "a/" + id,
				Time: time.Unix(int64(i+1), 0)}, b)
			must.OK(t, err)
			line := must.JSON(t, e)
			seen[e.ID()], ids = string(line), append(ids, e.ID())
		}
		return ids
	}
	batch := func(id string) []string {
		return log(id, events.Submitted{Batch: toolyard.Batch{ID: toolyard.BatchID(id), Agent: "a",
			Calls: []toolyard.Call{{ID: "c", Tool: "t", Input: json.RawMessage("{}")}}}},
			events.Planned{Owner: "d"}, events.Started{}, events.Reply{Results: []toolyard.Result{}, Completed: true})
	}
	stored := map[string][]string{"over": batch("over"), "ends": batch("ends"), "goes": batch("goes")}
	reads := map[string]int{}
	said := func(w http.ResponseWriter, name string, data string) {
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", name, data); err != nil {
			t.Error(err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		tell := func(id string) {
			said(w, "cloudevent", fmt.Sprintf(`{"agent":"a","batch":%q,"event":%s}`, id[:4], seen[id]))
		}
		for _, id := range []string{"over1", "over2", "over3", "ends1", "goes1"} {
			tell(id)
		}
		said(w, "cloudevent", `{"gap":"events are missing"}`)
		tell("goes3")
		said(w, "problem", `{"status":500,"detail":"that is all"}`)
	})
	mux.HandleFunc("GET /v1/batches/{id}/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		id := r.PathValue("id")
		until := 4
		if reads[id]++; reads[id] == 1 { // what came later was not stored then
			until = 2
		}
		for _, e := range stored[id][:until] {
			said(w, "cloudevent", seen[e])
		}
		said(w, "end", "{}")
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	c, err := client.ConnectHTTP(t.Context(), server.URL, client.HTTPOptions{MaxRetries: -1})
	must.OK(t, err)
	var out, errs bytes.Buffer
	p := eventPrinter{s: &std{out: &out, err: &errs}, out: &out, json: true}
	if err := p.all(t.Context(), c, ""); err == nil || !strings.Contains(err.Error(), "that is all") {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		var e struct {
			ID string `json:"id"`
		}
		must.OK(t, json.Unmarshal([]byte(line), &e))
		got = append(got, e.ID)
	}
	want := []string{"over0", "over1", "over2", "over3", "ends0", "ends1", "goes0", "goes1",
		"ends2", "ends3", "goes2", "goes3"}
	if !slices.Equal(got, want) {
		t.Errorf("it prints\n%q, want\n%q\n%s", got, want, &errs)
	}
	if !strings.Contains(errs.String(), "events are missing") {
		t.Errorf("nobody is told of the gap: %s", &errs)
	}
	if reads["over"] != 1 {
		t.Errorf("a batch that was over was read %d times", reads["over"])
	}
}

// TestWhatIsToldIsBounded: where batches are long, fewer of them are remembered: not those that began first, unless it
// is the one that goes on.
func TestWhatIsToldIsBounded(t *testing.T) {
	key := func(n int) toolyard.BatchKey {
		return toolyard.BatchKey{Agent: "a", ID: toolyard.BatchID(fmt.Sprint(n))}
	}
	told, id := newTold(), 0
	add := func(n, events int) {
		for range events {
			id++
			if !told.add(key(n), fmt.Appendf(nil, `{"id":"%d"}`, id)) {
				t.Fatalf("event %d is not new", id)
			}
		}
	}
	add(0, maxToldEvents/2)
	add(1, maxToldEvents/2)
	add(0, 1)
	add(2, maxToldEvents/4)
	var left []toolyard.BatchKey
	all := 0
	for _, k := range told.order {
		left, all = append(left, k), all+len(told.batches[k].ids)
	}
	if all > maxToldEvents {
		t.Errorf("%d events are remembered; at most %d are", all, maxToldEvents)
	}
	if want := []toolyard.BatchKey{key(0), key(2)}; !slices.Equal(left, want) || len(told.batches) != len(want) {
		t.Errorf("remembered are %v, want %v", left, want)
	}
}

// TestABatchThatWaitsIsRemembered: one that is under way, such as one that waits for a person for a day, is not
// forgotten for those that came and went meanwhile. Its next event would print all that was printed, and behind a gap
// nothing of it would be read.
func TestABatchThatWaitsIsRemembered(t *testing.T) {
	const over = `{"id":"%d","type":"%s","data":{"completed":true}}`
	for what, many := range map[string][2]int{"many batches": {maxTold + 1, 1}, "many events": {5, maxToldEvents / 4}} {
		told, id := newTold(), 1
		waits := toolyard.BatchKey{Agent: "a", ID: "waits"}
		told.add(waits, []byte(`{"id":"1"}`))
		for n := range many[0] {
			k := toolyard.BatchKey{Agent: "a", ID: toolyard.BatchID(fmt.Sprint(n))}
			for range many[1] {
				id++
				told.add(k, fmt.Appendf(nil, over, id, events.Results))
			}
		}
		if told.add(waits, []byte(`{"id":"1"}`)) || !slices.Equal(told.underWay(), []toolyard.BatchKey{waits}) {
			t.Errorf("%s: it is forgotten; under way are %v", what, told.underWay())
		}
		if len(told.order) > maxTold || told.events > maxToldEvents {
			t.Errorf("%s: %d batches and %d events are remembered", what, len(told.order), told.events)
		}
	}
}
