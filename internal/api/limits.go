package api

import (
	"time"

	"github.com/toolyard/toolyard"
)

// The limits of a request. Past each of them the client gets a problem document that names it.
const (
	// MaxBodyBytes is how long the body of a submission may be: a batch, and a model's words around its calls.
	MaxBodyBytes = toolyard.MaxBatchBytes + 1<<20
	// MaxSmallBodyBytes is how long any other body may be.
	MaxSmallBodyBytes = 2 << 20
	// maxDiscarded is how much of a body that is longer is read all the same, so that its client sees the answer.
	maxDiscarded = 128 << 20
	// MaxHeaderBytes is how long all headers of a request may be; the server of the process sets it.
	MaxHeaderBytes = 64 << 10
	// MaxStreams is how many event streams and waits are open at a time, and MaxAgentStreams how many of one token's
	// agent.
	MaxStreams      = 1_024
	MaxAgentStreams = 256
	// AgentBytesPerSecond is how much all streams of one token's agent may send in a second, and as much at once after
	// a pause. A write counts minWriteBytes at least.
	AgentBytesPerSecond = 8 << 20
	minWriteBytes       = 4 << 10
	// maxWriteBytes is about how much of a stream is written at once.
	maxWriteBytes = 64 << 10
	// maxPaced is how many keys a pace keeps before it forgets those that owe nothing.
	maxPaced = 10_000
	// MaxSubmissions is how many submissions are read at a time, and MaxAgentSubmissions how many of one token's agent:
	// each may hold MaxBodyBytes, more than once.
	MaxSubmissions      = 32
	MaxAgentSubmissions = 16
	// MaxBlobReads is how many results are read at a time for a part of them, and MaxAgentBlobReads how many of one
	// token's agent: each holds a whole result.
	MaxBlobReads      = 64
	MaxAgentBlobReads = 16
	// MaxLooks is how many searches and looks into logs are under way at a time, and MaxAgentLooks how many of one
	// token's agent: each may hold a log in memory.
	MaxLooks      = 16
	MaxAgentLooks = 4
	// MaxReports is how many reports are made at a time, and MaxAgentReports how many for one token's agent.
	MaxReports      = 2
	MaxAgentReports = 1
	// MaxReportBatches is how many batches one report adds up.
	MaxReportBatches = 5_000
	// MaxTokens is how many tokens a token file may have, and MaxTokenFileBytes how long it may be.
	MaxTokens         = 10_000
	MaxTokenFileBytes = 4 << 20
	// MaxIssuerBytes is how long an answer of the issuer of JWTs may be.
	MaxIssuerBytes = 1 << 20
	// MaxCodeRate is how many codes a second are exchanged for tokens at the issuer.
	MaxCodeRate = 10
	// minVerifier and maxVerifier bound the verifier of a code in characters, as RFC 7636 does.
	minVerifier, maxVerifier = 43, 128
	// maxIssuerAddresses is for how many addresses of the issuer it is known when they were asked.
	maxIssuerAddresses = 16
	// MaxTokenRate is the greatest rate that a token may have, in requests a second.
	MaxTokenRate = 100_000
	// MaxConnections is how many connections are open at a time, MaxStrangers how many of them have shown no token yet,
	// and MaxAgentConnections how many are of one token's agent.
	MaxConnections      = 4_096
	MaxStrangers        = 1_024
	MaxAgentConnections = 512
	// MaxWait is how long one request waits for results.
	MaxWait = 10 * time.Minute
	// DefaultPage is how many batches a page has, and MaxPage how many at most.
	DefaultPage = 100
	MaxPage     = 1_000
	// DefaultBlobBytes is how much of an offloaded result one answer has, and MaxBlobBytes how much at most.
	DefaultBlobBytes = 64 << 10
	MaxBlobBytes     = 4 << 20
)

// How long things take.
const (
	// HeaderTimeout is how long a client may take for its headers, and IdleTimeout how long a connection without a
	// request is kept; the server of the process sets them.
	HeaderTimeout = 5 * time.Second
	IdleTimeout   = time.Minute
	// TokenLook is how often the token file is read again, and TokenGrace how long its former tokens count while it
	// cannot be used.
	TokenLook  = time.Second
	TokenGrace = time.Minute
	// IssuerRefresh is how old the issuer's keys may be before they are asked for again, and IssuerGrace how old while
	// it does not answer. IssuerPause is the least time between two questions for the same address, and issuerTimeout
	// how long one may take.
	IssuerRefresh = 15 * time.Minute
	IssuerGrace   = time.Hour
	IssuerPause   = 10 * time.Second
	issuerTimeout = 5 * time.Second
	// bodyTimeout is how long a client may take for its body.
	bodyTimeout = time.Minute
	// requestTimeout bounds the work on a request; waits and streams come on top.
	requestTimeout = 30 * time.Second
	// ReportPeriod is how far back a report goes that does not say since when, and reportTime for how long one reads:
	// what is older then is left out. It is less than requestTimeout.
	ReportPeriod = 24 * time.Hour
	reportTime   = 20 * time.Second
	// submitTimeout is how long storing a batch may take, and submitPerMiB how much longer for each MiB of it: then the
	// client is told to send it again.
	submitTimeout = 3 * time.Second
	submitPerMiB  = time.Second
	// writeTimeout is how long a client may take to read what is written at once.
	writeTimeout = 30 * time.Second
	// slowWrite is how long a client takes for what is written at once when it is a slow one.
	slowWrite = time.Second
	// DefaultFeedIdle is how long a model's stream may be silent, maxFeed how long it may take, and feedDrain how long
	// what comes behind its last event.
	DefaultFeedIdle = 5 * time.Minute
	maxFeed         = time.Hour
	feedDrain       = 10 * time.Second
	// keepAlive is how often a silent stream says that it is there.
	keepAlive = 15 * time.Second
	// retryAfter is when a client that found no room is asked to come again.
	retryAfter = time.Second
	// streamRetry is after how long a client whose stream broke comes again, unless it knows better.
	streamRetry = time.Second
)
