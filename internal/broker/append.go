package broker

import (
	"errors"
)

// ErrConflict is wrapped by appends that lost: the chain does not end where the writer last saw it.
var ErrConflict = errors.New("another event stands there")

// ErrFull is wrapped when there is no room: a stream is at one of its limits, or the server's disk is full. Nothing was
// stored, unless it is a [*NoRoomError] that is unsure; trying again later may help.
var ErrFull = errors.New("the stream is full")

// ErrNoAnswer is wrapped when NATS did not answer in time. Whether anything was stored is not known; the same again is
// safe.
var ErrNoAnswer = errors.New("NATS does not answer")
