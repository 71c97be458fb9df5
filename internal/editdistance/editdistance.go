// Package editdistance counts how far two names are apart, for whoever suggests what was probably meant.
package editdistance

// Between is the number of elements to insert, delete or replace to make a of b. It costs len(a) × len(b) steps: callers
// bound the lengths.
func Between[T comparable](a, b []T) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j := range b {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
