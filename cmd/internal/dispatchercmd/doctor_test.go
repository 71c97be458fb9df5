package dispatchercmd

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/version"
)

// TestDoctorJudges: from when on a check warns or fails, and that it says what to do then.
func TestDoctorJudges(t *testing.T) {
	now := time.Date(2026, 11, 23, 8, 0, 0, 0, time.UTC)
	worker := func(change func(*client.Worker)) []client.Worker {
		w := client.Worker{ID: "w", Slots: 2, Version: "v1", WireVersion: version.Wire}
		change(&w)
		return []client.Worker{w}
	}
	one := func(f finding) []finding { return []finding{f} }
	settings := broker.Settings{}.WithDefaults()
	for _, c := range []struct {
		name string
		got  []finding
		want string // the levels
		says string
	}{
		{"the clock is right", one(ofClock(now.Add(time.Millisecond), now, now.Add(2*time.Millisecond))), "ok", "0 ms"},
		{"the clock is behind", one(ofClock(now.Add(-2*time.Second), now, now)), "warn", "2.0 s"},
		{"the clock is ahead", one(ofClock(now.Add(time.Minute), now, now)), "fail", "1 min 0 s"},
		{"the disk has room", one(ofDisk("/data", 2<<30, 4<<30)), "ok", "2048 MiB of 4096 MiB are free"},
		{"the disk fills", one(ofDisk("/data", 64<<20, 4<<30)), "warn", "64 MiB of 4096"},
		{"the disk is full", one(ofDisk("/data", 63<<20, 4<<30)), "fail", "63 MiB of 4096"},
		{"streams", one(ofStreams(map[string]int{"A": 3, "B": 20}, settings)), "ok", "2 streams with 1 replica, the " +
			"fullest is B with 20 percent"},
		{"streams fill", one(ofStreams(map[string]int{"A": 70, "B": 20}, settings)), "warn", "A with 70 percent"},
		{"streams are full", one(ofStreams(map[string]int{"A": 99}, settings)), "fail", "A with 99 percent"},
		{"many dead letters, which drop the oldest", one(ofStreams(map[string]int{"A": 3, "TY_DEAD": 100}, settings)),
			"ok", "2 streams with 1 replica, the fullest is A with 3 percent"},
		{"no streams", one(ofStreams(nil, settings)), "fail", "there are none"},
		{"no workers", ofWorkers(nil), "warn", "there is none"},
		{"a worker", ofWorkers(worker(func(*client.Worker) {})), "ok ok", "1 worker, 0 of 2 slots busy"},
		{"busy", ofWorkers(worker(func(w *client.Worker) { w.Busy = 2 })), "warn ok", "2 of 2 slots busy"},
		{"another version", ofWorkers(worker(func(w *client.Worker) { w.WireVersion++ })), "ok warn",
			"v1 (wire version"},
		{"dispatchers of this version", ofDispatchers([]broker.Dispatcher{{Version: "v1", WireVersion: version.Wire}}),
			"", ""},
		{"a dispatcher of another version",
			ofDispatchers([]broker.Dispatcher{{Version: "v2", WireVersion: version.Wire},
				{Version: "v1", WireVersion: version.Wire - 1}}), "warn", "dispatchers have v1 (wire version"},
		{"something is down",
			ofWorkers(worker(func(w *client.Worker) { w.Breakers = map[string]time.Time{"db": now} })),
			"ok ok warn", "down: db"},
		{"a name twice", ofWorkers(worker(func(w *client.Worker) { w.Conflicts = []string{"x of a and b"} })),
			"ok ok warn", "x of a and b"},
		{"no dead letters", one(ofDead(nil, now)), "ok", "none"},
		{"a dead letter", one(ofDead([]client.DeadLetter{{Time: now.Add(-time.Hour), Cause: "no\x1b[2J"}}, now)),
			"warn",
			"1 h 0 min old: no\ufffd"},
	} {
		var levels, says []string
		for _, f := range c.got {
			levels, says = append(levels, string(f.Level)), append(says, f.Says)
			if (f.Level == levelOK) != (f.Fix == "") {
				t.Errorf("%s: %s, and what to do is %q", c.name, f.Level, f.Fix)
			}
		}
		if got := strings.Join(levels, " "); got != c.want || !strings.Contains(strings.Join(says, "\n"), c.says) {
			t.Errorf("%s: %s, want %s: %q", c.name, got, c.want, says)
		}
	}
	d := diagnosis{Level: levelOK}
	d.add(found("a", levelOK, "", "well"), found("b", levelFail, "mend it", "broken"), found("c", levelWarn, "look",
		"odd"))
	var out bytes.Buffer
	s := &std{out: &out}
	if err := s.printDiagnosis(&d, false); err != nil || d.Level != levelFail ||
		out.String() != "ok    a  well\nfail  b  broken: mend it\nwarn  c  odd: look\n" {
		t.Errorf("%s, %v\n%s", d.Level, err, out.String())
	}
}

// TestDoctorAsksWhetherAServerIsReady: one that answers and can store nothing is not well.
func TestDoctorAsksWhetherAServerIsReady(t *testing.T) {
	for _, c := range []struct {
		status     int
		body, want string
	}{
		{http.StatusOK, "ok\n", "ok: URL answers"},
		{http.StatusNotFound, "a proxy", "ok: URL answers"},
		{http.StatusServiceUnavailable, `{"detail":"the disk is full"}`,
			"fail: URL answers, but is not ready: the disk is full"},
		{http.StatusInternalServerError, "", "fail: URL answers, but is not ready: 500 Internal Server Error"},
		{http.StatusServiceUnavailable, "", "fail: URL answers, but is not ready: 503 Service Unavailable"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/readyz" {
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body)) // the test sees what is missing
			}
		}))
		f, err := ofReady(t.Context(), &systemFlags{server: server.URL + "/"})
		server.Close()
		got := strings.ReplaceAll(string(f.Level)+": "+f.Says, server.URL+"/", "URL")
		if err != nil || got != c.want || (f.Fix == "") != (f.Level == levelOK) {
			t.Errorf("%d %q: %s, %v; want %s", c.status, c.body, got, err, c.want)
		}
	}
}

// TestDoctorSeesCertificatesThatEnd: one that runs out soon is named, whoever in the chain has it.
func TestDoctorSeesCertificatesThatEnd(t *testing.T) {
	now := time.Now()
	until := func(name string, d time.Duration) *x509.Certificate {
		return &x509.Certificate{Subject: pkix.Name{CommonName: name}, NotAfter: now.Add(d)}
	}
	const long = 30 * 24 * time.Hour
	for _, c := range []struct {
		state *tls.ConnectionState
		want  string // ""; none
	}{
		{nil, ""},
		{&tls.ConnectionState{PeerCertificates: []*x509.Certificate{until("n1", long)}}, ""},
		{&tls.ConnectionState{PeerCertificates: []*x509.Certificate{until("n1", 25*time.Hour)}},
			`"n1" of here runs out in`},
		{&tls.ConnectionState{PeerCertificates: []*x509.Certificate{until("n1", long)},
			VerifiedChains: [][]*x509.Certificate{{until("n1", long), until("ca", time.Hour)}}},
			`"ca" of here runs out in`},
	} {
		f, near := ofCertificates("certificate", "here", c.state, now)
		if near != (c.want != "") || !strings.Contains(f.Says, c.want) ||
			near && (f.Level != levelWarn || f.Fix == "") {
			t.Errorf("%+v: %v, %+v; want %q", c.state, near, f, c.want)
		}
	}
}
