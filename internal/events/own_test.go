package events

import (
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/internal/testenv/must"
)

// TestASubmissionThatIsCut: a submission that ends anywhere, also in an escape, is left to the general reader.
func TestASubmissionThatIsCut(t *testing.T) {
	const whole = `{"calls":[{"id":"1","tool":"t","input":{"a":["b\\"]}}]}`
	if !OwnSubmission([]byte(whole)) {
		t.Fatal("the whole one is not read")
	}
	for n := range len(whole) {
		for _, end := range []string{"", `\`, `"\`, `"`} {
			if text := whole[:n] + end; text != whole && OwnSubmission([]byte(text)) {
				t.Errorf("%s is read", text)
			}
		}
	}
}

// TestSpaceAroundAnInputIsNoPartOfIt: as the general reader reads it.
func TestSpaceAroundAnInputIsNoPartOfIt(t *testing.T) {
	read := 0
	for _, input := range []string{"null", " null", "null ", "\n{} "} {
		b, ok := readOwn(BatchSubmitted, []byte(`{"calls":[{"id":"1","tool":"t","input":`+input+`}]}`))
		if !ok {
			continue // the general reader has it
		}
		read++
		if got := string(b.(Submitted).Calls[0].Input); got != strings.TrimSpace(input) {
			t.Errorf("%q is read as %q", input, got)
		}
	}
	if read == 0 {
		t.Error("none is read")
	}
}

// TestAnOutputOfObjectsIsReadInItsSize: what a tool says does not decide how much memory its end takes to read.
func TestAnOutputOfObjectsIsReadInItsSize(t *testing.T) {
	for name, item := range map[string]string{"empty": `{},`, "small": `{"id":7},`} {
		out := strings.Repeat(item, 100_000/len(item))
		s, err := Store(Finish(End{Result: toolyard.Result{Output: "[" + out + "{}]"}}))
		must.OK(t, err)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, ok := readOwn(CallFinished, s.Data)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; !ok || took > 8*uint64(len(s.Data)) {
			t.Errorf("%s: to read %d bytes takes %d bytes (read: %t)", name, len(s.Data), took, ok)
		}
	}
}

// FuzzOwn: the own reader accepts nothing that the general reader reads otherwise, and does not crash.
func FuzzOwn(f *testing.F) {
	types := []Type{CallFinished, Results, BatchSubmitted, CallsRequested}
	for _, b := range []Body{
		Finish(End{Result: toolyard.Result{Index: 1, CallID: "c", Tool: "t", Output: "o\\\"},{"}}, End{}),
		Reply{Results: []toolyard.Result{{CallID: "c", Error: "e", Code: toolyard.Timeout, IsError: true}},
			Completed: true},
		Submitted{Batch: toolyard.Batch{Calls: []toolyard.Call{{ID: "1", Tool: "t", Input: []byte(`{"a":["b\\"]}`)}}}},
		Requested{Ticket: 7, Calls: []RequestedCall{{ID: "c", Tool: "t", Input: []byte(`{"a":["b\\"]}`), Attempt: 1}}},
	} {
		s, err := Store(b)
		must.OK(f, err)
		for n, t := range types {
			f.Add(n, s.Data)
			if t == s.Type {
				f.Add(n, append(s.Data[:len(s.Data)/2:len(s.Data)/2], '\\'))
			}
		}
	}
	f.Fuzz(func(t *testing.T, kind int, data []byte) {
		of := types[uint(kind)%uint(len(types))]
		own, ok := readOwn(of, data)
		if !ok {
			return
		}
		general, err := readGeneral(of, data)
		if err != nil || !reflect.DeepEqual(own, general) {
			t.Errorf("%s: %q is read as %+v, and by the general reader as %+v, %v", of, data, own, general, err)
		}
	})
}
