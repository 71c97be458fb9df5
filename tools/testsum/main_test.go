package main

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		name, in       string
		passed, failed int
		want           string
	}{
		{"nothing ran", "", 0, 0, ""},
		{"no test files", `{"Action":"output","Package":"c","Output":"?   \tc\t[no test files]\n"}
{"Action":"skip","Package":"c"}`, 0, 0, "?   \tc\t[no test files]\n"},
		{"passes", `{"Action":"output","Package":"a","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"pass","Package":"a","Test":"TestA/sub"}
{"Action":"pass","Package":"a","Test":"TestA"}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.1s\n"}
{"Action":"pass","Package":"a"}`, 2, 0, "ok  \ta\t0.1s\n"},
		{"a race during a test that passes", `{"Action":"output","Package":"a","Test":"TestA","Output":"WARNING: DATA RACE\n"}
{"Action":"pass","Package":"a","Test":"TestA"}`, 1, 0, "WARNING: DATA RACE\n"},
		{"fails", `{"Action":"output","Package":"a","Test":"TestA","Output":"    a_test.go:1: bad\n"}
{"Action":"output","Package":"a","Test":"TestB","Output":"    a_test.go:2: good\n"}
{"Action":"pass","Package":"a","Test":"TestB"}
{"Action":"fail","Package":"a","Test":"TestA"}
{"Action":"output","Package":"a","Output":"FAIL\n"}
{"Action":"output","Package":"a","Output":"FAIL\ta\t0.1s\n"}
{"Action":"fail","Package":"a"}`, 1, 1, "    a_test.go:1: bad\nFAIL\ta\t0.1s\n"},
		{"skips", `{"Action":"output","Package":"a","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"a","Test":"TestA","Output":"    a_test.go:1: no server\n"}
{"Action":"output","Package":"a","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
{"Action":"skip","Package":"a","Test":"TestA"}
{"Action":"pass","Package":"a"}`, 0, 0, "skipped a TestA: a_test.go:1: no server\n1 skipped\n"},
		{"does not build", `{"ImportPath":"b","Action":"build-output","Output":"# b\n"}
{"ImportPath":"b","Action":"build-output","Output":"b.go:1: no\n"}
{"ImportPath":"b","Action":"build-fail"}
{"Action":"output","Package":"b","Output":"FAIL\tb [build failed]\n"}
{"Action":"fail","Package":"b","FailedBuild":"b"}`, 0, 1, "# b\nb.go:1: no\nFAIL\tb [build failed]\n"},
		{"dies in a test", `{"Action":"output","Package":"a","Test":"TestA","Output":"killed\n"}
{"Action":"output","Package":"a","Output":"FAIL\ta\t0.1s\n"}
{"Action":"fail","Package":"a"}`, 0, 1, "FAIL\ta\t0.1s\nkilled\n"},
		{"go itself complains", "go: no such module\n", 0, 0, "go: no such module\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			passed, failed, err := summarize(strings.NewReader(c.in), &out)
			if err != nil || passed != c.passed || failed != c.failed {
				t.Errorf("%d passed, %d failed, %v; want %d, %d", passed, failed, err, c.passed, c.failed)
			}
			if out.String() != c.want {
				t.Errorf("printed\n%s\nwant\n%s", out.String(), c.want)
			}
		})
	}
}

func TestSummarizeBrokenInput(t *testing.T) {
	broken := errors.New("broken pipe")
	if _, _, err := summarize(iotest.ErrReader(broken), &strings.Builder{}); !errors.Is(err, broken) {
		t.Errorf("error %v; want %v", err, broken)
	}
}
