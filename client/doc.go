// Package client hands batches of tool calls to Toolyard and gets their results.
//
//	c, err := client.Connect(ctx, nc, client.Options{})
//	b, err := c.Submit(ctx, toolyard.Batch{Agent: "agent-1", Calls: calls})
//	for result, err := range b.Results(ctx) {
//		...
//	}
//
// A [Client] speaks NATS ([Connect]) or HTTP ([ConnectHTTP]), and does the same over both unless a method says
// otherwise.
//
// [Client.Submit] returns when the batch is stored: from then on each call gets exactly one result, whatever fails.
// Results come in the order of the calls, each as soon as all before it are there. A program that was away asks for the
// same batch again with [Client.Batch].
//
// [Client.Open] submits a batch to which calls are appended while a model is still talking; [Client.Feed] does so from
// a provider's event stream.
//
// [Client.Approvals] and [Client.Decide] are for people who decide about calls, and [Client.Batches], [Client.Watch],
// [Client.Workers] and [Client.DeadLetters] for operators.
//
// Methods wait for the system when it is away for a moment, for as long as their context allows. An error that programs
// act on wraps one of the Err values, and what was handed in wrong is a [*toolyard.InputError].
package client
