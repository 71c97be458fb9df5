//go:build !linux

package shells

import (
	"context"
	"errors"
)

// lock needs Linux, as the sandboxes do that keep the files of /tmp.
func (s *Store) lock(context.Context) (unlock func() error, err error) {
	return nil, errors.New("shells that remember need Linux")
}
