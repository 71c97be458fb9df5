package natsbroker

// What a worker may do, and when others may act in its place, are parts of one wait: the worker TTL for its place in the
// registry, the call ack wait for a delivery. All of them count from when the last heartbeat was sent that was answered,
// or from the last sign of life that others had.
//
//	0      1/4    1/2    3/4    7/8     11/8      3/2
//	beat   beat   beat   lease  stop    stopped   patience: others may act
//
// They hold with an eighth of the wait to spare: see TestLeasesFitTogether.
