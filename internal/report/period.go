package report

import (
	"fmt"
	"time"

	"github.com/toolyard/toolyard"
)

// Between reads the two ends of a period: times, or how long before now they were. An end that is empty is zero, and
// sets no bound. In errors, prefix stands before the names since and until. They are [*toolyard.InputError]s.
func Between(prefix, since, until string, now time.Time) (from, to time.Time, err error) {
	if from, err = moment(prefix+"since", since, now); err != nil {
		return from, to, err
	}
	if to, err = moment(prefix+"until", until, now); err == nil && until != "" && !from.Before(to) {
		err = &toolyard.InputError{Field: prefix + "since", Problem: fmt.Sprintf("is not before %suntil: %s and %s",
			prefix, from.UTC().Format(time.RFC3339), to.UTC().Format(time.RFC3339))}
	}
	return from, to, err
}

func moment(name, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, &toolyard.InputError{Field: name, Problem: fmt.Sprintf(
			"is %q; use a time like %s, or how long ago, like 36h", text, now.UTC().Format(time.RFC3339))}
	}
	return t, nil
}
