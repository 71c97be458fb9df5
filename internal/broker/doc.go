// Package broker is what dispatcher, worker, client and API know of the store that they share: its ports, and the words
// in which they speak of it.
//
// A port is a small interface of what one of them needs: [Log], [Inbox], [Queue], [Tickets], [Registry], [Sessions],
// [Approvals], [Blobs], [DeadLetters], [Signals], [Live], [Link] and others in ports.go. Each of those shells names the
// ports that it needs in a file of its own, ports.go. Package natsbroker has them all, on NATS JetStream.
//
// Authority: the log. [Log] says what happened; everything else is a hint, an index of it, or a queue of work that is
// checked against it.
//
// Failure: an error that programs act on is one of errors.go. Whether what failed so may succeed later is for the store
// to say: [Link.MayPass].
package broker
