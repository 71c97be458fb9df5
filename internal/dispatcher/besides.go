package dispatcher

import "sync"

// besides counts what goes on beside a batch and ends by itself.
type besides struct {
	sync.WaitGroup
	mu    sync.Mutex
	under int
	// indexed says that the first entry of the index is written, and what follows it has begun.
	indexed bool
}

// run runs something in a goroutine.
func (b *besides) run(what func()) {
	b.add(1)
	b.Go(func() {
		defer b.add(-1)
		what()
	})
}

func (b *besides) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.under += n
}

// entered notes that the batch is in the index.
func (b *besides) entered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.indexed = true
}

// done reports whether nothing goes on beside the batch, or will.
func (b *besides) done() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.under == 0 && b.indexed
}
