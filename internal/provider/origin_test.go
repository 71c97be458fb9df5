package provider

import (
	"strings"
	"testing"

	"github.com/toolyard/toolyard"
)

// TestOriginInEveryForm: the model reads the delimiters in every form, and only forms with room for it have the origin.
func TestOriginInEveryForm(t *testing.T) {
	const text = "<outside-aaaa source=\"docs.example:443\">\nhello\n</outside-aaaa>"
	calls := []toolyard.Call{{ID: "a", Tool: "t"}, {ID: "b", Tool: "t"}}
	results := []toolyard.Result{
		{Index: 0, CallID: "a", Tool: "t", Output: text, Origin: &toolyard.Origin{Source: "docs.example:443",
			Fence: "aaaa", Found: []toolyard.Finding{{Scanner: "invisible", Kind: "tag", Count: 2, Action: "strip"}}}},
		{Index: 1, CallID: "b", Tool: "t", Output: "ours"},
	}
	unfenced := []toolyard.Result{{Index: 0, CallID: "a", Tool: "t", Output: "hello",
		Origin: &toolyard.Origin{Source: "docs.example:443"}}}
	if got, err := Render(Gemini, calls[:1], unfenced, nil); err != nil || strings.Contains(string(got), "origin") {
		t.Errorf("an origin that nobody has asked for: %s, %v", got, err)
	}
	for form, room := range map[Format]bool{Anthropic: false, OpenAI: false, OpenAIChat: false, Gemini: true,
		Native: true} {
		got, err := Render(form, calls, results, nil)
		if err != nil {
			t.Fatal(err)
		}
		const origin = `"origin":{"source":"docs.example:443","fence":"aaaa",` +
			`"found":[{"scanner":"invisible","kind":"tag","count":2,"action":"strip"}]}`
		flat := strings.NewReplacer("\n", "", "  ", "", "\": ", "\":").Replace(string(got))
		if strings.Count(flat, `source=\"docs.example:443\"`) != 1 || strings.Contains(flat, origin) != room ||
			strings.Count(flat, `"origin"`) > 1 {
			t.Errorf("%s: %s", form, got)
		}
	}
}
