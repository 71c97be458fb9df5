package dispatchercmd

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/toolyard/toolyard/client"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/version"
)

// From when on doctor warns, and fails.
const (
	doctorFree        = 1 << 30                // bytes of the disk under --data that are free: doctor warns below
	doctorFullPercent = 50                     // how full a stream may be before doctor warns
	doctorExpires     = 7 * 24 * time.Hour     // how long before credentials run out doctor warns
	doctorClock       = time.Second            // between this clock and the server's: doctor warns from here on
	doctorClockFail   = 30 * time.Second       // between this clock and the server's: doctor fails from here on
	doctorRTT         = 100 * time.Millisecond // of a request to NATS: doctor warns beyond
)

// maxReadyBytes bounds what a server may say about why it is not ready.
const maxReadyBytes = 64 << 10

// level is how a check has ended.
type level string

const (
	levelOK   level = "ok"
	levelWarn level = "warn"
	levelFail level = "fail"
)

// finding is what a check has found. Fix says what to do, unless all is well.
type finding struct {
	Check string `json:"check"`
	Level level  `json:"level"`
	Says  string `json:"says"`
	Fix   string `json:"fix,omitempty"`
	// err is the error that has ended the check, if one has.
	err error
}

func found(check string, l level, fix, says string, args ...any) finding {
	if l == levelOK {
		fix = ""
	}
	return finding{Check: check, Level: l, Says: cli.OneLine(fmt.Sprintf(says, args...)), Fix: fix}
}

// failed is a check that an error has ended.
func failed(check, fix string, err error) finding {
	f := found(check, levelFail, fix, "%v", err)
	f.err = err
	return f
}

// diagnosis is what doctor prints as JSON.
type diagnosis struct {
	Level    level     `json:"level"` // the worst
	Findings []finding `json:"findings"`
	// wrong is what is wrong with the flags, if that has ended a check.
	wrong *cli.UsageError
}

func (d *diagnosis) add(all ...finding) {
	for _, f := range all {
		if wrong, ok := errors.AsType[*cli.UsageError](f.err); ok && d.wrong == nil {
			d.wrong = wrong
		}
		if f.Level == levelFail || f.Level == levelWarn && d.Level == levelOK {
			d.Level = f.Level
		}
	}
	d.Findings = append(d.Findings, all...)
}

func (s *std) doctorCommand() *cobra.Command {
	var sys systemFlags
	var box cli.Sandbox
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Check this machine and a running system, and say how to mend what is wrong",
		Long: `doctor looks at this machine, the store and the credentials that a dispatcher on it has, and what isolates commands
here. Then it looks at the system at --nats, or at --server: whether it answers and is ready, clocks, streams,
workers, versions and dead letters. Each check is a line: ok, warn or fail, and what to do. It changes nothing.

Exit status: 0 nothing has failed (there may be warnings), 1 a check has failed, 2 the flags are wrong.`,
		Example: `  dispatcher doctor
  dispatcher doctor --nats nats://n1:4222 --creds secrets/creds
  dispatcher doctor --server https://tools.example.com --json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := sys.check(); err != nil {
				return err
			}
			log, err := s.log.Logger(s.err)
			if err != nil {
				return err
			}
			d := diagnosis{Level: levelOK}
			d.add(machine())
			d.add(s.store(&sys)...)
			d.add(isolation(cmd.Context(), &box))
			if err := s.examine(cmd.Context(), &sys, &d, log); err != nil {
				return err
			}
			if err := ended(cmd.Context(), s.printDiagnosis(&d, asJSON)); err != nil {
				return err
			}
			if d.wrong != nil {
				return d.wrong
			}
			if d.Level == levelFail {
				return errors.New("a check has failed; see above")
			}
			return nil
		},
	}
	sys.add(cmd)
	box.Add(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func (s *std) printDiagnosis(d *diagnosis, asJSON bool) error {
	if asJSON {
		return printJSON(s.out, d)
	}
	p := s.lines()
	paint := map[level]func(string) string{levelOK: p.paint.Good, levelWarn: p.paint.Warn, levelFail: p.paint.Bad}
	var rows [][]cli.Cell
	for _, f := range d.Findings {
		text := f.Says
		if f.Fix != "" {
			text += ": " + f.Fix
		}
		rows = append(rows, []cli.Cell{{Text: string(f.Level), Paint: paint[f.Level]}, {Text: f.Check}, {Text: text}})
	}
	p.printf("%s", cli.Table(rows, "", p.columns))
	return p.err
}

// machine looks at this machine.
func machine() finding {
	return found("machine", levelOK, "", "%s/%s, %s, %s, wire version %d", runtime.GOOS, runtime.GOARCH,
		count(runtime.GOMAXPROCS(0), "processor"), version.Build(), version.Wire)
}

// store looks at where a dispatcher on this machine keeps its streams.
func (s *std) store(sys *systemFlags) (out []finding) {
	dir, err := cli.DataDir(sys.reach.Data)
	if err != nil {
		return []finding{found("data", levelWarn, "name a directory with --data", "%v", err)}
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []finding{found("data", levelOK, "", "%s is not there; dispatcher serve makes it", dir)}
	case err != nil:
		return []finding{failed("data", "let this user read it, or name another with --data", err)}
	case !info.IsDir():
		return []finding{found("data", levelFail, "name a directory with --data", "%s is no directory", dir)}
	case info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows": // where the mode does not say who may
		out = append(out, found("data", levelWarn, "chmod 700 "+dir, "other users can look into %s (mode %04o)", dir,
			info.Mode().Perm()))
	}
	free, total, err := natsd.Disk(dir)
	if err != nil {
		return append(out, found("data", levelWarn, "look at the disk yourself", "%v", err))
	}
	return append(out, ofDisk(dir, free, total))
}

// ofDisk judges the room that is left. Below what a dispatcher keeps for what is under way it refuses new batches.
func ofDisk(dir string, free, total int64) finding {
	l := levelOK
	switch {
	case free < natsd.MinReserve:
		l = levelFail
	case free < doctorFree:
		l = levelWarn
	}
	return found("data", l, "make room, or move --data to another disk", "%s: %d MiB of %d MiB are free", dir, free>>20,
		total>>20)
}

// isolation looks at what would stand around a command here.
func isolation(ctx context.Context, flags *cli.Sandbox) finding {
	box, err := flags.Box()
	if err != nil {
		return failed("sandbox", "see worker check --help", err)
	}
	caps, err := box.Probe(ctx)
	if err != nil {
		return found("sandbox", levelWarn, "worker check says what is missing; without it a call of bash ends as "+
			"setup_required", "no command can run on this machine")
	}
	return found("sandbox", levelOK, "", "commands run in %s", caps.Isolation())
}

// examine looks at a running system. What cannot be looked at after a failure is left out. The error is that ctx ended.
func (s *std) examine(ctx context.Context, sys *systemFlags, d *diagnosis, log *slog.Logger) error {
	if sys.server == "" {
		f := credentials(sys, time.Now())
		d.add(f)
		if f.err != nil { // nobody connects with these
			return ended(ctx, nil)
		}
		if !examineNATS(ctx, sys, d, log) {
			return ended(ctx, nil)
		}
	}
	err := s.ask(ctx, sys, "doctor", func(ctx context.Context, c *client.Client) error {
		if sys.server != "" {
			f, err := ofReady(ctx, sys)
			if err != nil {
				return err
			}
			d.add(f)
		}
		workers, err := c.Workers(ctx)
		if err != nil {
			return err
		}
		d.add(ofWorkers(workers)...)
		letters, err := c.DeadLetters(ctx, 1)
		if refused, ok := errors.AsType[*client.HTTPError](err); ok && refused.Status == http.StatusForbidden {
			d.add(found("dead letters", levelWarn, "use an operator's token", "%v", err))
			return nil
		}
		if err != nil {
			return err
		}
		d.add(ofDead(letters, time.Now()))
		return nil
	})
	if err != nil && ctx.Err() == nil {
		d.add(failed("system", "see the reason", err))
		return nil
	}
	return ended(ctx, nil)
}

// ofReady asks the server whether it can do its work: it answers also while its store is full, or NATS is away.
func ofReady(ctx context.Context, sys *systemFlags) (finding, error) {
	with, err := cli.HTTPClient("--server-ca", sys.serverCA)
	if err != nil {
		return finding{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(sys.server, "/")+"/readyz", nil)
	if err != nil {
		return finding{}, err
	}
	resp, err := cmp.Or(with, http.DefaultClient).Do(req)
	if err != nil {
		return finding{}, err
	}
	defer func() { _ = resp.Body.Close() }()              // it is read as far as it is needed
	if resp.StatusCode < http.StatusInternalServerError { // a proxy may pass on nothing but /v1
		if f, near := ofCertificates("http", sys.server, resp.TLS, time.Now()); near {
			return f, nil
		}
		return found("http", levelOK, "", "%s answers", sys.server), nil
	}
	var why struct {
		Detail string `json:"detail"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxReadyBytes)).Decode(&why); err != nil || why.Detail == "" {
		why.Detail = resp.Status
	}
	return found("http", levelFail, "see the reason, and the server's log", "%s answers, but is not ready: %s",
		sys.server, why.Detail), nil
}

// ofCertificates says which certificate of a server runs out soon, its own or one that has signed it. near is false if
// none does, or the connection has no TLS. One that has run out already is an error of the connection.
func ofCertificates(what, server string, state *tls.ConnectionState, now time.Time) (f finding, near bool) {
	if state == nil {
		return finding{}, false
	}
	for _, c := range cli.Chain(state) {
		if left := c.NotAfter.Sub(now); left < doctorExpires {
			return found(what, levelWarn, "put a new one there; init-auth --update makes new ones for the nodes of its "+
				"cluster", "the certificate %q of %s runs out in %s", c.Subject.CommonName, server,
				cli.Human(max(left, 0))), true
		}
	}
	return finding{}, false
}

// credentials looks at as whom this machine's commands connect.
func credentials(sys *systemFlags, now time.Time) finding {
	as, expires, err := sys.reach.Shown(sys.nats, operator)
	switch {
	case err != nil:
		return failed("credentials", "name others with --creds, or mend the file", err)
	case as == "":
		return found("credentials", levelWarn, "name those of its dispatcher with --creds or --data, unless the server "+
			"asks for none", "there are none here")
	case !expires.IsZero() && !expires.After(now):
		return found("credentials", levelFail, "put new ones there, of whoever has made them",
			"%s ran out %s ago", as, cli.Human(now.Sub(expires)))
	case !expires.IsZero() && expires.Before(now.Add(doctorExpires)):
		return found("credentials", levelWarn, "get new ones of whoever has made them; those that Toolyard makes do not run "+
			"out", "%s runs out in %s", as, cli.Human(expires.Sub(now)))
	}
	return found("credentials", levelOK, "", "%s", as)
}

// examineNATS looks at the NATS server, its clock and the streams. It reports whether there is more to look at.
func examineNATS(ctx context.Context, sys *systemFlags, d *diagnosis, log *slog.Logger) bool {
	nc, err := sys.reach.Connect(sys.nats, operator, "toolyard doctor", log)
	if err != nil {
		fix := "start it, or name another with --nats"
		if cli.Refused(err) {
			fix = "see the reason"
		}
		d.add(failed("nats", fix, err))
		return false
	}
	defer nc.Close()
	rtt, err := nc.RTT()
	if err != nil {
		d.add(found("nats", levelFail, "look at the server's log", "it does not answer: %v", err))
		return false
	}
	d.add(ofNATS(nc, rtt))
	if state, err := nc.TLSConnectionState(); err == nil { // an error: the connection has no TLS
		if f, near := ofCertificates("certificate", natsbroker.ShownURL(nc.ConnectedUrl()), &state, time.Now()); near {
			d.add(f)
		}
	}
	ctx, stop := context.WithTimeout(ctx, setupTimeout)
	defer stop()
	b, err := natsbroker.Attach(ctx, nc, "/doctor/"+broker.NewID())
	if err != nil {
		fix := "look at the server's log"
		if errors.Is(err, broker.ErrNoSystem) {
			fix = "start a dispatcher: the first one makes them"
		}
		d.add(failed("streams", fix, err))
		return false
	}
	if who := b.Who(); who.Role != "" {
		d.add(found("credentials", levelFail, "name an operator's with --creds",
			"the server takes them, and they reach what is for %s, and nothing that is looked at here", who))
		return false
	}
	asked := time.Now()
	clock, err := b.Clock(ctx)
	if err != nil {
		d.add(failed("clock", "look at the server's log", err))
		return false
	}
	d.add(ofClock(clock, asked, time.Now()))
	stock, err := b.Stock(ctx)
	if err != nil {
		d.add(failed("streams", "look at the server's log", err))
		return false
	}
	d.add(ofStreams(stock.Streams, b.Settings()))
	served, err := b.Served(ctx)
	if err != nil {
		d.add(failed("shards", "look at the server's log", err))
		return false
	}
	d.add(ofShards(served))
	dispatchers, err := b.Dispatchers(ctx)
	if err != nil {
		d.add(failed("versions", "look at the server's log", err))
		return false
	}
	d.add(ofDispatchers(dispatchers)...)
	return true
}

func ofNATS(nc *nats.Conn, rtt time.Duration) finding {
	tls := "plain text"
	if nc.TLSRequired() {
		tls = "TLS"
	}
	l := levelOK
	if rtt > doctorRTT {
		l = levelWarn
	}
	return found("nats", l, "with a way that long give serve --ack-wait of four round trips or more",
		"nats-server %s at %s answers in %s, %s", nc.ConnectedServerVersion(),
		natsbroker.ShownURL(nc.ConnectedUrlRedacted()), cli.Human(rtt), tls)
}

// ofClock compares the server's clock with this machine's between a question and its answer.
func ofClock(server, asked, answered time.Time) finding {
	off := time.Duration(0)
	switch {
	case server.Before(asked):
		off = asked.Sub(server)
	case server.After(answered):
		off = server.Sub(answered)
	}
	l := levelOK
	switch {
	case off >= doctorClockFail:
		l = levelFail
	case off >= doctorClock:
		l = levelWarn
	}
	return found("clock", l, "set both by NTP", "the server's is %s from this machine's", cli.Human(off))
}

// ofStreams says how full the fullest stream is, of those that must not be full.
func ofStreams(full map[string]int, settings broker.Settings) finding {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(full)), natsbroker.DropsOldest)
	if len(names) == 0 {
		return found("streams", levelFail, "start a dispatcher: the first one makes them", "there are none")
	}
	fullest := slices.MaxFunc(names, func(a, b string) int { return full[a] - full[b] })
	l := levelOK
	switch {
	case full[fullest] >= dispatcher.DefaultAdmitPercent:
		l = levelFail
	case full[fullest] >= doctorFullPercent:
		l = levelWarn
	}
	in := ""
	if n := settings.ShardCount(); n > 1 {
		in = " in " + count(n, "shard")
	}
	return found("streams", l, fmt.Sprintf("at %d percent new batches are refused: wait until old ones are "+
		"forgotten, or see docs/runbook.md", dispatcher.DefaultAdmitPercent),
		"%s%s with %s, the fullest is %s with %d percent", count(len(full), "stream"), in,
		count(settings.Replicas, "replica"), fullest, full[fullest])
}

// ofShards says which shards nobody serves.
func ofShards(served []broker.ServedShard) finding {
	if gaps := broker.Gaps(served); len(gaps) > 0 {
		return found("shards", levelFail, "what belongs there waits: start one without --serve-shards, or with that shard",
			"%s", strings.Join(gaps, "; "))
	}
	return found("shards", levelOK, "", "dispatchers and workers serve %s", count(len(served), "shard"))
}

// ofDispatchers says which dispatchers have another wire version. It says nothing of those that have this program's.
func ofDispatchers(all []broker.Dispatcher) []finding {
	others := builds{}
	for _, d := range all {
		if d.WireVersion != version.Wire {
			others.add(d.Version, d.WireVersion)
		}
	}
	if len(others) == 0 {
		return nil
	}
	return []finding{others.mixed("dispatchers")}
}

// builds are versions of processes, as doctor names them.
type builds map[string]bool

func (b builds) add(name string, wire int) { b[fmt.Sprintf("%s (wire version %d)", name, wire)] = true }

func (b builds) String() string { return strings.Join(slices.Sorted(maps.Keys(b)), ", ") }

// mixed is the finding that some processes have another wire version than this program.
func (b builds) mixed(who string) finding {
	return found("versions", levelWarn, "bring all to one version: docs/upgrades.md",
		"%s have %s, and this program has wire version %d", who, b, version.Wire)
}

// ofWorkers looks at the live workers.
func ofWorkers(workers []client.Worker) (out []finding) {
	if len(workers) == 0 {
		return []finding{found("workers", levelWarn, "start one: worker serve --workspace default=DIR",
			"there is none, so calls wait and then end as dependency_unavailable")}
	}
	slots, busy := 0, 0
	var down, conflicts []string
	versions := builds{}
	newer := false
	for _, w := range workers {
		slots, busy = slots+w.Slots, busy+w.Busy
		down = append(down, slices.Collect(maps.Keys(w.Breakers))...)
		conflicts = append(conflicts, w.Conflicts...)
		versions.add(w.Version, w.WireVersion)
		newer = newer || w.WireVersion != version.Wire
	}
	l := levelOK
	if slots > 0 && busy == slots {
		l = levelWarn
	}
	out = append(out, found("workers", l, "start more workers, or give them more slots", "%s, %d of %s busy",
		count(len(workers), "worker"), busy, count(slots, "slot")))
	switch {
	case newer:
		out = append(out, versions.mixed("workers"))
	default:
		out = append(out, found("versions", levelOK, "", "workers have %s", versions))
	}
	if slices.Sort(down); len(down) > 0 {
		out = append(out, found("dependencies", levelWarn, "dispatcher workers says which worker found it, and until "+
			"when it is not tried", "down: %s", strings.Join(slices.Compact(down), ", ")))
	}
	if slices.Sort(conflicts); len(conflicts) > 0 {
		out = append(out, found("tools", levelWarn, "give one of them another name", "%s",
			strings.Join(slices.Compact(conflicts), "; ")))
	}
	return out
}

// ofDead looks at the newest dead letter.
func ofDead(letters []client.DeadLetter, now time.Time) finding {
	if len(letters) == 0 {
		return found("dead letters", levelOK, "", "there are none")
	}
	return found("dead letters", levelWarn, "dispatcher dead lists them", "the newest is %s old: %s",
		cli.Human(now.Sub(letters[0].Time)), letters[0].Cause)
}
