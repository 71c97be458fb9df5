package crew

import "time"

// OnceDue begins something in a goroutine when a time has passed. Stop keeps it from beginning, or has it end, as end
// does, and waits for that. It is called once.
func OnceDue(after time.Duration, begin, end func()) (stop func()) {
	done := make(chan struct{})
	due := time.AfterFunc(after, func() {
		defer close(done)
		begin()
	})
	return func() {
		end()
		if !due.Stop() {
			<-done
		}
	}
}
