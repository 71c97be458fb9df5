package shell

import "strings"

// Quote makes one word of a text, for a POSIX shell.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
