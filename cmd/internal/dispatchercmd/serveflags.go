package dispatchercmd

import (
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/api"
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/dispatcher"
	"github.com/toolyard/toolyard/internal/natsd"
	"github.com/toolyard/toolyard/internal/shard"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	url, listen, natsListen          string
	reach                            cli.Reach
	natsCert, natsKey                string
	tlsCert, tlsKey                  string
	natsPlain                        bool
	serves                           cli.Shards
	tokenFile                        string
	oidc                             oidcFlags
	auditLog                         string
	withWorker, syncAlways           bool
	migrate                          bool
	replicas, maxConcurrency, shards int
	maxBatches, maxAgentBatches      int
	maxOpen                          int
	maxWaiting, maxAgentWaiting      int
	admitPercent                     int
	lifetime, ackWait                time.Duration
	timeout, workerWait              time.Duration
	queueWait, approvalWait          time.Duration
	backgroundTime                   time.Duration
	backgroundCalls                  int
	archiveAfter                     time.Duration
	signingKey                       string
	refuseSecrets                    bool
	maxStore, reserve                int64
	compression                      string
	perms                            cli.Permissions
	views, deferAllBut               []string
	agentQuotas, teamQuotas          []string
	quotaFile                        string
	worker                           cli.Worker
	mcp                              mcpFlags
	memory                           cli.Memory
	observe                          cli.Observe
}

func (o *serveFlags) add(f *pflag.FlagSet) {
	o.addHTTP(f)
	o.addNATS(f)
	o.addStore(f)
	o.addTurns(f)
	o.addWaits(f)
	o.addWorker(f)
	o.addTools(f)
	o.perms.Add(f)
	o.perms.AddKnown(f)
	o.addSecrets(f)
	o.memory.Add(f)
	o.observe.Add(f)
}

// addSecrets adds the flag about secrets in inputs.
func (o *serveFlags) addSecrets(f *pflag.FlagSet) {
	defer cli.Topic(f, cli.TopicSecrets)()
	f.BoolVar(&o.refuseSecrets, "refuse-secrets", false, "refuse calls with a secret in their input before they are "+
		"stored: over HTTP and MCP; what agents publish on NATS themselves is refused when it is taken")
}

// addHTTP adds the flags of what is served over HTTP, and to whom.
func (o *serveFlags) addHTTP(f *pflag.FlagSet) {
	defer cli.Topic(f, cli.TopicHTTP)()
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080",
		"where the HTTP API is served, as `HOST:PORT`; port 0 takes a free one")
	f.StringVar(&o.tlsCert, "tls-cert", "", "the HTTP API speaks TLS with the certificate in `FILE`, which is read "+
		"again when it changes; with --tls-key")
	f.StringVar(&o.tlsKey, "tls-key", "", "the key of --tls-cert, in `FILE`")
	f.StringVar(&o.tokenFile, "token-file", "", "the bearer tokens of the HTTP API: lines TOKEN AGENT [KEY=VALUE "+
		"...] in `FILE`, the agent * for an operator; docs/http.md has the keys. It has the mode 0600, and is read "+
		"again when it changes (default: no tokens, and only a loopback --listen)")
	o.oidc.add(f)
	f.StringVar(&o.auditLog, "audit-log", "", "append to `FILE` who handed in, decided and canceled what: a line of "+
		"JSON for each; SIGHUP opens it again (default: none)")
	o.mcp.add(f)
	o.mcp.addKey(f)
}

// addNATS adds the flags of the NATS system.
func (o *serveFlags) addNATS(f *pflag.FlagSet) {
	defer cli.Topic(f, cli.TopicNATS)()
	f.StringVar(&o.url, "nats", "", "use the NATS system at `URL` instead of an embedded server")
	f.StringVar(&o.natsListen, "nats-listen", "127.0.0.1:4222",
		"where the embedded NATS server listens, as `HOST:PORT`; port 0 takes a free one")
	f.StringVar(&o.natsCert, "nats-cert", "",
		"the embedded NATS server speaks TLS with the certificate in `FILE`; with --nats-key")
	f.StringVar(&o.natsKey, "nats-key", "", "the key of --nats-cert, in `FILE`")
	f.BoolVar(&o.natsPlain, "dangerously-listen-without-tls", false, "let --nats-listen name an address that others "+
		"reach though there is no --nats-cert: whoever is on the way reads and changes everything")
	f.StringVar(&o.reach.Data, "data", "", "where the embedded NATS server keeps its streams, and in creds the "+
		"credentials that it makes at its first start (default: toolyard in the user's state directory)")
	o.reach.AddCreds(f)
}

// addStore adds the flags of the streams.
func (o *serveFlags) addStore(f *pflag.FlagSet) {
	defer cli.Topic(f, cli.TopicStore)()
	standard := broker.Settings{}.WithDefaults()
	f.BoolVar(&o.migrate, "migrate", false,
		"first bring streams that an older version has made to the form that this one needs; stop all other "+
			"dispatchers and all workers before")
	f.BoolVar(&o.syncAlways, "sync-always", false,
		"the embedded server writes each message through to the disk: it survives a power loss, and is slower")
	f.IntVar(&o.replicas, "replicas", 0,
		fmt.Sprintf("on how many NATS servers each stream is kept: 1, 3 or 5 (default: as the system was made, or %d)",
			standard.Replicas))
	f.IntVar(&o.shards, "shards", 0, fmt.Sprintf("into how many sets of streams batches and workspaces are divided, each "+
		"with leaders of its own: 1 to %d (default: as the system was made, or 1)", shard.Max))
	o.serves.Add(f, "batches, and with --with-worker calls,")
	f.DurationVar(&o.lifetime, "batch-lifetime", 0,
		fmt.Sprintf("how long a batch is kept, waits for people included (default: as the system was made, or %s)",
			standard.Lifetime))
	f.DurationVar(&o.ackWait, "ack-wait", 0, fmt.Sprintf("how long a worker may be silent before its calls are "+
		"settled or given to others, in whole seconds: longer where the way to NATS is long "+
		"(default: as the system was made, or %s, and %s with several replicas)", standard.CallAckWait,
		broker.Settings{Replicas: 3}.WithDefaults().CallAckWait))
	cli.BytesVar(f, &o.maxStore, "max-store-bytes",
		fmt.Sprintf("what the streams may use on disk together, like 64GiB (default: as the system was made, or %dGiB)",
			standard.MaxStoreBytes>>30))
	f.StringVar(&o.compression, "store-compression", "",
		fmt.Sprintf("how the NATS servers keep full blocks of the large streams on disk: %s or %s. The bytes of store "+
			"count what is there before compression (default: as the system was made, or %s)", broker.CompressionNone,
			broker.CompressionS2, standard.Compression))
	cli.BytesVar(f, &o.reserve, "disk-reserve", fmt.Sprintf("how many bytes of the disk under --data are kept for "+
		"batches under way: when less is free, new ones are refused "+
		"(default: a hundredth of the disk, %dMiB to %dGiB)", natsd.MinReserve>>20, natsd.MaxReserve>>30))
	f.IntVar(&o.admitPercent, "admit-percent", dispatcher.DefaultAdmitPercent,
		"how full the store may be, in percent, before new batches are refused; the rest is for those under way")
}

// addTurns adds the flags of how much runs and waits.
func (o *serveFlags) addTurns(f *pflag.FlagSet) {
	defer cli.Topic(f, cli.TopicTurns)()
	f.IntVar(&o.maxConcurrency, "max-concurrency", toolyard.DefaultMaxConcurrency,
		"calls in flight of a batch that names no number")
	f.IntVar(&o.maxBatches, "max-batches", dispatcher.DefaultMaxBatches,
		"batches that this dispatcher runs at a time; agents take turns")
	f.IntVar(&o.maxAgentBatches, "max-agent-batches", dispatcher.DefaultMaxAgentBatches,
		"batches of one agent that this dispatcher runs at a time")
	f.IntVar(&o.maxOpen, "max-open", dispatcher.DefaultMaxOpen,
		"open batches that wait in this dispatcher for calls of their agents, beside those that run")
	f.IntVar(&o.maxWaiting, "max-waiting", dispatcher.DefaultMaxWaiting,
		"new batches that wait in this dispatcher; more are refused, those of the agent that has the most first")
	f.IntVar(&o.maxAgentWaiting, "max-agent-waiting", dispatcher.DefaultMaxAgentWaiting,
		"new batches of one agent that wait in this dispatcher; more are refused")
	f.StringArrayVar(&o.agentQuotas, "agent-quota", nil, "what each agent may use in all dispatchers together, as "+
		"`AGENTS=KEY:N,...` of batches, calls, calls-per-minute, calls-per-second, waiting-bytes; a name of agents may "+
		"end in *, the first that names an agent counts, and all dispatchers need the same; may be repeated")
	f.StringArrayVar(&o.teamQuotas, "team-quota", nil, "the same for a team, as `AGENTS=KEY:N,...`: all agents that it "+
		"names share it; may be repeated")
	f.StringVar(&o.quotaFile, "quota-file", "", "more quotas, behind those of the flags, rates and budgets: lines agent "+
		"AGENTS=KEY:N,..., team AGENTS=KEY:N,..., tool NAME=KEY:N,..., dependency NAME=KEY:N,... and budget KIND "+
		"AGENTS=KEY:N,... in `FILE`; SIGHUP has it read again (default: none)")
}

// addWaits adds the flags of how long something is waited for.
func (o *serveFlags) addWaits(f *pflag.FlagSet) {
	defer cli.Topic(f, cli.TopicWaits)()
	f.DurationVar(&o.timeout, "timeout", dispatcher.DefaultBatchTimeout, "the time limit of a batch that names none")
	f.DurationVar(&o.workerWait, "worker-wait", dispatcher.DefaultWorkerWait,
		"how long a call waits while no worker can take it, before it ends as dependency_unavailable; "+
			"and how long after its start a dispatcher waits for workers that serve a batch's workspace")
	f.DurationVar(&o.queueWait, "queue-wait", dispatcher.DefaultQueueWait,
		"how long a call waits for a free worker, before it ends as dependency_unavailable")
	f.DurationVar(&o.approvalWait, "approval-wait", dispatcher.DefaultApprovalWait,
		"how long a call waits for a person, within the batch's lifetime, before it ends as approval_expired")
	f.IntVar(&o.backgroundCalls, "max-background", toolyard.DefaultBackgroundCalls, fmt.Sprintf(
		"how many background calls a session may have at a time, 1 to %d", toolyard.MaxBackgroundCalls))
	f.DurationVar(&o.backgroundTime, "background-time", toolyard.DefaultBackgroundTime,
		"how long a background call may run, within the lifetime of batches")
	f.DurationVar(&o.archiveAfter, "archive-after", 0, fmt.Sprintf("how long batches are over, at least %s, before "+
		"they are packed into the archive, which may use a quarter of --max-store-bytes beside it; all dispatchers, "+
		"workers and clients must be of this version or a later one (default: never)", broker.MinArchiveAfter))
	f.StringVar(&o.signingKey, "signing-key", "", "sign what is archived with the NKey in `FILE`, for verify; "+
		"signing-key makes one (default: it is not signed)")
}

// addWorker adds the flags of the worker in this process.
func (o *serveFlags) addWorker(f *pflag.FlagSet) {
	defer cli.Topic(f, cli.TopicWorker)()
	f.BoolVar(&o.withWorker, "with-worker", false, "run a worker in this process too")
	o.worker.Add(f)
}

// addTools adds the flags of what agents see.
func (o *serveFlags) addTools(f *pflag.FlagSet) {
	defer cli.Topic(f, cli.TopicTools)()
	addDeferAllBut(f, &o.deferAllBut)
	f.StringArrayVar(&o.views, "view", nil, "show agents some tools only, as `AGENT=TOOL,TOOL`; a name may end in *, "+
		"and the first view that names an agent counts; may be repeated")
}

func (o *serveFlags) check() error {
	for _, d := range []struct {
		flag string
		v    time.Duration
	}{{"--timeout", o.timeout}, {"--worker-wait", o.workerWait}, {"--queue-wait", o.queueWait},
		{"--approval-wait", o.approvalWait}, {"--background-time", o.backgroundTime}} {
		if d.v <= 0 {
			return cli.Usagef("%s %s: use a positive time", d.flag, d.v)
		}
	}
	if o.backgroundCalls < 1 || o.backgroundCalls > toolyard.MaxBackgroundCalls {
		return cli.Usagef("--max-background %d: use 1 to %d", o.backgroundCalls, toolyard.MaxBackgroundCalls)
	}
	if o.reserve < 0 {
		return cli.Usagef("--disk-reserve %d: use a positive number of bytes", o.reserve)
	}
	elsewhere := o.reach.Elsewhere(o.url)
	if o.reserve > 0 && elsewhere {
		return cli.Usagef("--disk-reserve: the NATS server is not in this process (--nats, --nats-context); it looks " +
			"after its own disk")
	}
	if o.lifetime < 0 {
		return cli.Usagef("--batch-lifetime %s: use a positive time", o.lifetime)
	}
	if err := checkAckWait(o.ackWait); err != nil {
		return err
	}
	if o.archiveAfter != 0 && o.archiveAfter < broker.MinArchiveAfter {
		return cli.Usagef("--archive-after: is %s; use at least %s, or 0 for never", o.archiveAfter,
			broker.MinArchiveAfter)
	}
	if o.signingKey != "" && o.archiveAfter == 0 {
		return cli.Usagef("--signing-key: nothing is signed unless it is archived; set --archive-after too")
	}
	if o.maxConcurrency < 1 || o.maxConcurrency > toolyard.MaxConcurrency {
		return cli.Usagef("--max-concurrency %d: use 1 to %d", o.maxConcurrency, toolyard.MaxConcurrency)
	}
	if _, _, err := net.SplitHostPort(o.natsListen); err != nil && !elsewhere {
		return cli.Usagef("--nats-listen %q: use HOST:PORT", o.natsListen)
	}
	if err := o.checkTLS(); err != nil {
		return err
	}
	if _, _, err := net.SplitHostPort(o.listen); err != nil {
		return cli.Usagef("--listen %q: use HOST:PORT", o.listen)
	}
	if o.tokenFile == "" && o.oidc.issuer == "" && !api.IsLoopbackHost(o.listen) {
		return cli.Usagef("--listen %s: without --token-file anybody who reaches it could run tools; give it one, or "+
			"listen on 127.0.0.1", o.listen)
	}
	if o.shards < 0 || o.shards > shard.Max {
		return cli.Usagef("--shards %d: use 1 to %d", o.shards, shard.Max)
	}
	if err := o.serves.Check(); err != nil {
		return err
	}
	for _, n := range []struct {
		flag    string
		v, most int
	}{
		{"--max-batches", o.maxBatches, broker.MaxOpenSubmissions},
		{"--max-agent-batches", o.maxAgentBatches, broker.MaxOpenSubmissions},
		{"--max-open", o.maxOpen, broker.MaxOpenSubmissions},
		{"--max-waiting", o.maxWaiting, broker.MaxOpenSubmissions},
		{"--max-agent-waiting", o.maxAgentWaiting, broker.MaxOpenSubmissions},
		{"--admit-percent", o.admitPercent, dispatcher.SilentPercent},
	} {
		if n.v < 1 || n.v > n.most {
			return cli.Usagef("%s %d: use 1 to %d", n.flag, n.v, n.most)
		}
	}
	return nil
}

// checkTLS refuses half a pair of files, and an embedded server that others reach in plain text.
func (o *serveFlags) checkTLS() error {
	elsewhere := o.reach.Elsewhere(o.url)
	switch {
	case elsewhere && (o.natsCert != "" || o.natsKey != "" || o.natsPlain):
		return cli.Usagef("--nats-cert, --nats-key and --dangerously-listen-without-tls are for the embedded server; " +
			"with --nats or --nats-context there is none")
	case (o.natsCert == "") != (o.natsKey == ""):
		return cli.Usagef("--nats-cert and --nats-key go together; give both")
	case (o.tlsCert == "") != (o.tlsKey == ""):
		return cli.Usagef("--tls-cert and --tls-key go together; give both")
	case !elsewhere && o.natsCert == "" && !o.natsPlain && !api.IsLoopbackHost(o.natsListen):
		return cli.Usagef("--nats-listen %s: others reach it, and without TLS whoever is on the way reads and "+
			"changes everything; "+
			"give it --nats-cert and --nats-key, listen on 127.0.0.1, or say --dangerously-listen-without-tls",
			o.natsListen)
	}
	return nil
}

// checkAckWait checks the value of --ack-wait; 0 is none.
func checkAckWait(wait time.Duration) error {
	if wait < 0 || wait%time.Second != 0 {
		return cli.Usagef("--ack-wait %s: use whole seconds", wait)
	}
	return nil
}
