package broker

import (
	"fmt"

	"github.com/google/uuid"
)

// SourceWorker begins the source of what a worker writes; its id follows.
const SourceWorker = "/worker/"

// NewID makes an id that no other has and that sorts by time.
func NewID() string {
	id, err := uuid.NewV7()
	if err != nil { // the system's source of randomness is gone: nothing can be named apart any more
		panic(fmt.Errorf("make an id: %w", err))
	}
	return id.String()
}
