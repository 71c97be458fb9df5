package broker

import (
	"errors"
)

// ErrOtherContent is wrapped when a batch of the same id was submitted with other content.
var ErrOtherContent = errors.New("a batch of this id has other content")
