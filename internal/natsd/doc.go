// Package natsd runs the embedded nats-server with JetStream: the engine of a single machine, and of tests. A fleet
// points at a NATS cluster and does not use it.
//
// Authority: one server owns one store directory. The directory is locked while the server lives; a second server on
// it is refused. The kernel drops the lock when the process dies, however it dies.
//
// Ordering: [Start] returns when the store is recovered and clients are served. [Server.Shutdown] returns when the
// clients are gone, the store is closed and no goroutine of the server is left; only then is the lock dropped.
//
// Failure: what JetStream acknowledged survives the death of the process at any instruction. It survives a power loss
// only with [Options.SyncAlways]; without it the last [SyncInterval] may be lost. [Server.Keep] ends when the store
// directory vanishes, and starts the server again when a full disk has room; [Server.Room] says how that stands.
//
// With [Options.Access] the server asks its clients for credentials, which it makes at its first start. The streams are
// in one account, that of dispatchers and operators; each agent and each pool of workers has an account of its own, in
// which there is what the table of grants gives it, and nothing else.
package natsd
