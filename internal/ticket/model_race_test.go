//go:build race

package ticket_test

const raced = true
