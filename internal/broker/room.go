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

// NoRoomError says that a batch was not taken since the disk under the NATS server is full. It is an [ErrFull].
type NoRoomError struct {
	Reason string
	// Unsure says that the batch was sent before that was known.
	Unsure bool
}

func (e *NoRoomError) Error() string {
	if e.Unsure {
		return "there is no room: " + e.Reason + ". The batch was not acknowledged; the same one again, under the same id, is safe"
	}
	return "there is no room: " + e.Reason + ". Nothing of the batch was stored: try again later"
}

// Is makes it an [ErrFull].
func (e *NoRoomError) Is(target error) bool { return target == ErrFull }
