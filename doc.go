// Package toolyard has the types that all of Toolyard shares: what an agent hands in and what it gets back.
//
// An agent hands in a [Batch]: the [Call]s that its model made in one turn, in their order. Each call ends with exactly
// one [Result], whose [Code] is empty on success. Package client does the handing in:
//
//	b, err := c.Submit(ctx, toolyard.Batch{Agent: "agent-1", Calls: []toolyard.Call{
//		{ID: "toolu_01", Tool: "read_file", Input: json.RawMessage(`{"file_path": "README.md"}`)},
//	}})
//
// Before a call runs it is judged to be of a concurrency [Class], which decides what may run beside it. It goes through
// twelve phases, each of which leaves a [Fact] in the result. [BatchView] is what is known of a batch at any time.
//
// Times in JSON are in milliseconds and sizes in bytes, as the names of the fields say. The zero value of a field has
// the strictest meaning. The package imports no other of Toolyard's and decides nothing.
//
// # Wire versions
//
// The JSON of these types is the wire form. Event types carry a version (".v1"); a change that an older reader would
// misread gets a new one and a line here.
//
//	2026-11-21  v1  first version
package toolyard
