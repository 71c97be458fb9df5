//go:build !linux

package ledger

import "time"

// Now is the wall clock where nothing else is shared by all processes without more ado.
func Now() int64 { return time.Now().UnixNano() }
