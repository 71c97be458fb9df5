// Package docs compares the documents with the code: examples, sample output, the code map, the list of limits, the
// length of lines, and the set-up that make check begins with. Run it with -update to write what is made from the code.
package docs
