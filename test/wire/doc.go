// Package wire holds what processes of different versions read of each other against what is written down, so that
// nobody changes it without a word.
package wire
