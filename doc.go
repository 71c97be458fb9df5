// Package toolyard is the vocabulary of the project: the values that an agent hands in, that workers produce and
// that travel in events. Everything else imports it; it imports nothing of ours, and decides nothing.
//
// An agent hands over a [Batch]: the ordered [Call]s that its model emitted in one turn. Each call is judged into a
// concurrency [Class], runs through the [Phase]s of the pipeline, each of which leaves a [Fact], and ends as exactly
// one [Result], whose [Code] is empty on success. [BatchView] is what may be seen of a batch at any time.
//
// # Wire versions
//
// The JSON of these types is the wire form. Event types carry a version (".v1"); a change that an older reader would
// misread gets a new one and a line here.
//
//	2026-11-21  v1  first version
package toolyard
