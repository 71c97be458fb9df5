package shard

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Set is the shards that a process serves, in order. Nil is all of them, also those that are added later.
type Set []int

// ParseSet reads a list such as "0,2-3"; "" is nil.
func ParseSet(text string) (s Set, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(low)
		to := from
		if err == nil && isRange {
			to, err = strconv.Atoi(high)
		}
		if err != nil || from < 0 || to >= Max || from > to {
			return nil, fmt.Errorf("%q: use numbers from 0 to %d, as in 0,2-3", part, Max-1)
		}
		for n := from; n <= to; n++ {
			s = append(s, n)
		}
	}
	slices.Sort(s)
	return slices.Compact(s), nil
}

// String is the inverse of [ParseSet]; "all" if it is nil.
func (s Set) String() string {
	if s == nil {
		return "all"
	}
	var parts []string
	for i := 0; i < len(s); i++ {
		first := i
		for i+1 < len(s) && s[i+1] == s[i]+1 {
			i++
		}
		part := strconv.Itoa(s[first])
		if i > first {
			part += "-" + strconv.Itoa(s[i])
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

// Has reports whether a shard is in the set.
func (s Set) Has(n int) bool { return s == nil || slices.Contains(s, n) }

// Check returns an error if the set names a shard that a system of so many does not have.
func (s Set) Check(shards int) error {
	if s == nil {
		return nil
	}
	if len(s) == 0 {
		return errors.New("no shard is named")
	}
	for _, n := range s {
		if n < 0 || n >= shards {
			return fmt.Errorf("there is no shard %d: the system has %d, from 0 to %d", n, shards, shards-1)
		}
	}
	return nil
}
