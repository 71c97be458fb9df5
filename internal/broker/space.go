package broker

// Room describes the disk of the NATS server. Only a dispatcher with the server in its process knows it; the zero Room
// says that nothing prevents storing.
type Room struct {
	// Full says that the remaining space is for batches that are under way. Stalled says that nothing can be stored at
	// all.
	Full    bool `json:"full,omitempty"`
	Stalled bool `json:"stalled,omitempty"`
	// Reason says why, and what to do.
	Reason string `json:"reason,omitempty"`
}

// Fill is how full the store is: its fullest stream or bucket, in percent of its limit.
type Fill struct {
	Stream  string
	Percent int
	// Refusals is the same for the streams in which the refusal of a batch is stored.
	Refusals int
}
