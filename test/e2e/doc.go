// Package e2e runs the real commands as real processes and looks at what they print, and at the log that they leave.
package e2e
