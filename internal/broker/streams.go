package broker

// Fill is how full the store is: its fullest stream or bucket, in percent of what that may hold.
type Fill struct {
	Stream  string
	Percent int
	// Refusals is how full those are, in percent, that the refusal of a batch is stored in.
	Refusals int
}
