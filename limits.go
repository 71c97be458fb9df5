package toolyard

import "time"

// DefaultProgramTimeout is [Options].ProgramTimeoutMS when a batch does not say. Anthropic's container gives up a call
// after about 270 s; the rest is for the answer's way back.
const DefaultProgramTimeout = 240 * time.Second

// The limits on what an agent may hand in. Past each of them the caller gets an [InputError] that names it.
const (
	MaxCallsPerBatch = 10_000   // calls in one batch
	MaxBatchBytes    = 16 << 20 // encoded bytes of one batch
	MaxNameBytes     = 128      // bytes of an agent, batch, session, workspace, pool, tool or call name
	MaxJSONDepth     = 512      // nesting of objects and arrays in a batch
	MaxEchoBytes     = 16 << 10 // bytes of a call's Echo
	MaxRulesPerBatch = 1_000    // deny and ask rules that one batch may bring
	MaxConcurrency   = 1_000    // calls of one batch in flight
	MaxTagsAsked     = 16       // tags that one batch, or one tool, asks for
	MaxTagBytes      = 64       // bytes of a tag

	// DefaultMaxConcurrency is how many calls of one batch are in flight when it does not say.
	DefaultMaxConcurrency = 10
)
