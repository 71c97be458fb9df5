//go:build linux

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/testenv/must"
	"github.com/toolyard/toolyard/internal/testenv/smalldisk"
)

// What the disk of S1 holds, and what of it is kept.
const (
	s1Disk    = 96 << 20
	s1Reserve = 24 << 20
)

// TestDiskFillsUp (S1): the disk under the embedded server's store fills up under load: first into the reserve for
// batches under way, then to the last byte. Later it has room again.
func TestDiskFillsUp(t *testing.T) {
	cell(t, "S1", func(s *system) rules {
		store := s.store()
		must.OK(s.t, os.Mkdir(store, 0o700))
		d := s.begun(s.launchAs(func(c *exec.Cmd) { smalldisk.Command(c, store, s1Disk) }, "dispatcher", "",
			"dispatcher", "serve",
			"--nats-listen", s.freePorts(1)[0], "--data", store, "--disk-reserve", fmt.Sprint(s1Reserve),
			"--max-store-bytes", fmt.Sprint(s.settings.MaxStoreBytes),
			"--listen", "127.0.0.1:0", "--log-level", "info"), "nats")
		s.url = d.said("nats")
		disk := smalldisk.Reach(d.pid(), store)
		s.reached = disk
		s.open()
		s.together(func() { s.worker("worker-a", "") }, func() { s.worker("worker-b", "") })
		s.seesWorkers(2)
		at := d.said("http")
		if status, _ := s.get(at + "/readyz"); status != http.StatusOK {
			s.t.Fatalf("readyz says %d while there is room", status)
		}
		l := s.load(mix{full: true})
		s.progress(10 + s.rand.IntN(30))

		smalldisk.Fill(s.t, disk, s1Reserve/4)
		s.until(faultWait, "readyz says 503", func() bool {
			status, _ := s.get(at +
				"/readyz")
			return status == http.StatusServiceUnavailable
		})
		s.noRoom(at, store, "low")

		filler := smalldisk.Fill(s.t, disk, 0)
		s.until(faultWait, "nothing can be stored", func() bool {
			_, says := s.get(at + "/readyz")
			return strings.Contains(says, "nothing more can be stored")
		})
		s.noRoom(at, store, "full")
		began := time.Now()
		// more than the block has that was written last
		large := toolyard.Batch{Agent: "dan", ID: "at-full", Workspace: "dan"}
		for range 8 {
			large.Calls = append(large.Calls, toolyard.Call{Tool: "look", Input: raw(map[string]int{"work_ms": 1}),
				Echo: toolyard.Echo(raw(map[string]string{"x": strings.Repeat("x", toolyard.MaxEchoBytes/2)}))})
		}
		_, err := s.c.Submit(s.context(), large)
		if took := time.Since(began); !errors.Is(err, client.ErrFull) || !strings.Contains(err.Error(), store) ||
			took > 20*time.Second {
			s.t.Errorf("over NATS, after %s: %v; want an ErrFull with the reason, soon", took, err)
		}
		if status, _ := s.get(at + "/healthz"); status != http.StatusOK {
			s.t.Errorf("healthz says %d; the process is alive", status)
		}

		const full, over = "the store is nearly full", "the store has room again"
		s.until(faultWait, "the log says that it is full", func() bool { return strings.Contains(d.logged(), full) })

		must.OK(s.t, os.Remove(filler))
		s.diskFull = true
		s.faultOver()
		s.until(faultWait, "readyz says 200", func() bool {
			status, _ := s.get(at +
				"/readyz")
			return status == http.StatusOK
		})
		l.extra(large)
		l.finish()
		s.until(faultWait, "the log says that it is over", func() bool { return strings.Contains(d.logged(), over) })
		for _, line := range []string{full, over} {
			if n := strings.Count(d.logged(), line); n != 1 {
				s.t.Errorf("the log says %q %d times", line, n)
			}
		}
		r := rules{codes: map[string][]toolyard.Code{}}
		// workers renew their leases by storing: where nothing is stored for longer than one, calls are stopped
		for name, k := range kinds {
			r.codes[name] = []toolyard.Code{toolyard.OutcomeUnknown}
			if !k.Exclusive {
				r.codes[name] = append(r.codes[name], toolyard.SiblingCanceled)
			}
		}
		return r
	})
}

// get asks over HTTP.
func (s *system) get(url string) (status int, says string) {
	s.t.Helper()
	return s.ask(http.MethodGet, url, "")
}

func (s *system) ask(method, url, body string) (status int, says string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	must.OK(s.t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	must.OK(s.t, err)
	defer resp.Body.Close()
	var p struct{ Detail string }
	_ = json.NewDecoder(resp.Body).Decode(&p) // what is no problem document has no detail
	return resp.StatusCode, p.Detail
}

// noRoom hands a batch in over HTTP, which must be refused soon, and say why.
func (s *system) noRoom(at, dir, id string) {
	s.t.Helper()
	began := time.Now()
	status, says := s.ask(http.MethodPost, at+"/v1/batches",
		fmt.Sprintf(`{"id":%q,"agent":"dan","calls":[{"tool":"look","input":{"work_ms":1}}]}`, id))
	if took := time.Since(began); status != http.StatusServiceUnavailable || !strings.Contains(says, dir) ||
		!strings.Contains(says, "free") || took > 10*time.Second {
		s.t.Errorf("%s: after %s the answer is %d: %s; want 503 with the directory and what is free, soon", id, took,
			status, says)
	}
	if status, _ := s.ask(http.MethodGet, at+"/v1/batches/"+id+"?agent=dan", ""); status != http.StatusNotFound {
		s.t.Errorf("%s: the batch was refused, and asking for it says %d", id, status)
	}
}
