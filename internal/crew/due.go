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

// Every does something each time that an interval has passed, in a goroutine that lives for that only. It takes less
// time than the interval. Stop waits for what is being done, and then nothing is done any more.
func Every(interval time.Duration, do func()) (stop func()) {
	turn := make(chan struct{}, 1) // whoever has put something in may go on
	over := false
	var next *time.Timer
	turn <- struct{}{}
	next = time.AfterFunc(interval, func() {
		turn <- struct{}{}
		if !over {
			do()
			next.Reset(interval)
		}
		<-turn
	})
	<-turn
	return func() {
		turn <- struct{}{}
		over = true
		next.Stop()
		<-turn
	}
}
