package admission

import (
	"strings"
	"testing"
)

func TestGrants(t *testing.T) {
	for text, want := range map[string]Grant{
		"a=batches:1":     {"a", Quota{Batches: 1}},
		"web-*=calls:999": {"web-*", Quota{Calls: 999}},
		"*=calls-per-minute:6,waiting-bytes:1000000000,batches:3,calls:4": {"*",
			Quota{Batches: 3, Calls: 4, CallsPerMinute: 6, WaitingBytes: MaxQuota}},
	} {
		if got, err := ParseGrant(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                         "write AGENTS=KEY:N",
		"a":                        "write AGENTS=KEY:N",
		"a=":                       "write AGENTS=KEY:N",
		"=batches:1":               "is empty",
		"a*b=batches:1":            "only at the end",
		"a=batch:1":                `"batch" is none of the keys`,
		"a=batches:1,batches:2":    "there twice",
		"a=batches":                `batches is ""`,
		"a=batches:0":              `batches is "0"; use 1 to`,
		"a=batches:-1":             `batches is "-1"`,
		"a=calls:1x":               `calls is "1x"`,
		"a=calls:1000000001":       `calls is "1000000001"`,
		"a=calls:1,":               `"" is none of the keys`,
		"a\n=waiting-bytes:1":      "control character",
		"a=waiting-bytes:1;calls:": `waiting-bytes is "1;calls:"`,
	} {
		if got, err := ParseGrant(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %s", text, got, err, want)
		}
	}
}
