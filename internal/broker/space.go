package broker

// Room is what is known of the disk under the NATS server. Only a dispatcher that has the server in its process knows
// anything; the zero Room says that nothing is known against storing.
type Room struct {
	// Full says that what is left is for batches that are under way. Stalled says that nothing can be stored at all.
	Full    bool `json:"full,omitempty"`
	Stalled bool `json:"stalled,omitempty"`
	// Reason says why, and what to do.
	Reason string `json:"reason,omitempty"`
}

// Fill is how full the store is: its fullest stream or bucket, in percent of what that may hold.
type Fill struct {
	Stream  string
	Percent int
	// Refusals is how full those are, in percent, that the refusal of a batch is stored in.
	Refusals int
}
