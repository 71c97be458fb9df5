// Package broker defines the ports of the store that dispatcher, worker, client and API share, and their vocabulary.
//
// A port is a small interface: [Log], [Inbox], [Queue], [Tickets], [Registry], [Sessions], [Approvals], [Blobs],
// [DeadLetters], [Signals], [Live], [Link] and others in ports.go. Each of these shells lists the ports that it needs
// in its own file ports.go. Package natsbroker implements all of them on NATS JetStream.
//
// Authority: the log. [Log] says what happened; everything else is a hint, an index of the log, or a queue of work that
// is checked against it.
//
// Failure: an error that programs act on is one of errors.go. [Link.MayPass] says whether a failed operation may
// succeed later.
package broker
