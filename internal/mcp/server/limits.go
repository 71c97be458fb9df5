package server

import "time"

// The limits of what one server does at a time, and of what it sends.
const (
	// MaxRequestBytes is how long one message of a client may be.
	MaxRequestBytes = 4 << 20
	// MaxCalls is how many calls are waited for at a time, and MaxAgentCalls how many of one agent. More are answered
	// with an error that says when to come again.
	MaxCalls      = 1_024
	MaxAgentCalls = 128
	// MaxSessions is how many sessions of the older revisions are open at a time, and MaxAgentSessions how many of one
	// agent.
	MaxSessions      = 1_024
	MaxAgentSessions = 64
	// MaxTools is how many tools are listed. The last ones by name are left out, and the log says so.
	MaxTools = 5_000
	// DefaultResourceBytes is how much of an offloaded result one answer has when the reader names no limit, and
	// MaxResourceBytes how much at most.
	DefaultResourceBytes = 1 << 20
	MaxResourceBytes     = 4 << 20
	// MaxReads is how many offloaded results are read at a time for a part of them, and MaxAgentReads how many of one
	// agent. Each is in memory as a whole meanwhile.
	MaxReads      = 64
	MaxAgentReads = 16
	// MaxShownBytes is how long the question about a call may be. An input that does not fit cannot be allowed this
	// way: nobody has seen it.
	MaxShownBytes = 16 << 10
	// shownColumns is how wide the lines of a question are.
	shownColumns = 100
	// MaxStateBytes is how long the state may be that a client carries between a question and its answer.
	MaxStateBytes = 8 << 10
	// TaskPage is how many tasks one page of their list has, and taskScan how many batches are looked through for it.
	TaskPage = 50
	taskScan = 500
	// MaxTold is of how many tasks clients are told at a time, and MaxAgentTold of how many those of one agent.
	MaxTold      = 1_024
	MaxAgentTold = 128
	// MaxTaskIDs is how many tasks one listener hears of.
	MaxTaskIDs = 64
	// MaxQuestions is how many questions of its script's calls a task asks at a time.
	MaxQuestions = 16
	// maxOutlineBytes is how much is kept of a message that is too long, to find its id.
	maxOutlineBytes = 4 << 10
	// maxMessageBytes is how much of what a tool says on the way stands in one notification.
	maxMessageBytes = 500
)

// How long things take.
const (
	// DefaultMaxWait is how long a request waits for the result of its call, when the configuration does not say.
	DefaultMaxWait = 15 * time.Minute
	// MaxAsk is how long a person may take for an answer that a request waits for, and StateLifetime how long the state
	// of a question is good that no request waits for.
	MaxAsk        = 30 * time.Minute
	StateLifetime = 24 * time.Hour
	// SessionTimeout is after how long without a request a session of the older revisions ends.
	SessionTimeout = 30 * time.Minute
	// listTTL is how long a client may keep the list of tools without asking again. Who listens for changes learns of
	// them at once.
	listTTL = 10 * time.Second
	// resourceTTL is how long a client may keep a part of an offloaded result. Its name is made from its content.
	resourceTTL = time.Hour
	// DefaultTaskAfter is how long the request of a call waits before the call becomes a task, of a client that knows
	// tasks.
	DefaultTaskAfter = 2 * time.Second
	// PollInterval is how long clients are told to wait between two looks at a task.
	PollInterval = time.Second
	// MinTaskTTL is how long a task is kept at least. It is kept as long as its batch at most.
	MinTaskTTL = time.Minute
	// defaultLifetime is how long a pool keeps a batch that was told nothing else.
	defaultLifetime = 72 * time.Hour
	// storeTimeout bounds how long a batch is stored.
	storeTimeout = time.Minute
	// pipeGrace is how long a client over a pipe that has closed its end is still answered. A client that cannot wait
	// ends the process.
	pipeGrace = 30 * time.Second
	// stopTimeout bounds what is still done for a call whose client has gone.
	stopTimeout = 10 * time.Second
	// answerGrace is how long a server that stops waits until the requests over HTTP are answered.
	answerGrace = time.Second
	// keepAlive is how often a silent response says that it is there.
	keepAlive = 15 * time.Second
	// listEvery is how often the list of approvals is read for a call that is known to wait.
	listEvery = 100 * time.Millisecond
)
