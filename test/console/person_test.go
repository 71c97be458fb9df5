package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

// writes is a call that waits for a person.
func writes(file string) call {
	return call{"id": "c", "tool": "write_file", "input": call{"file_path": file, "content": "x\n"}}
}

// approvalOf is the id of the approval that a batch waits for.
func (s *system) approvalOf(batch string) string {
	s.Helper()
	var list struct {
		Approvals []struct{ ID, Batch string }
	}
	s.ask("", http.MethodGet, "/v1/approvals", nil, &list)
	for _, a := range list.Approvals {
		if a.Batch == batch {
			return a.ID
		}
	}
	s.Fatalf("batch %s waits for nobody", batch)
	return ""
}

// TestNoCallTakesThePlaceOfAnother: what a person looks at stays there, so that a key never decides about a call that
// came in the meantime.
func TestNoCallTakesThePlaceOfAnother(t *testing.T) {
	s := start(t)
	s.submit("", "first", "s", writes("first.txt"))
	b := open(t, s.url)
	b.visit("#/approvals")
	shown := func(file string) bool {
		b.Helper()
		return strings.Contains(strings.Join(b.words(".panel .lines"), " "), file)
	}
	waiting := func(n string) { b.Helper(); b.until(n+" wait", `document.querySelectorAll(".asks li").length === `+n) }
	b.has("first.txt")
	s.submit("", "second", "s", writes("second.txt"))
	waiting("2")
	if !shown("first.txt") {
		b.Error("a newer call has taken the place of the one that was shown")
	}

	// A key that is held down decides once: the next call is there before it is let go.
	b.script(`window.posts = 0; const f = window.fetch; window.fetch = (a, b) => {
		if (b?.method === "POST") window.posts++; return f(a, b) };
		document.body.dispatchEvent(new KeyboardEvent("keydown", {key: "d", repeat: true, bubbles: true}))`)
	if n := value[int](b, `window.posts`); n != 0 {
		b.Error("a key that is held down decides again")
	}

	s.ask("", http.MethodPost, "/v1/approvals/"+url.PathEscape(s.approvalOf("first")), call{"decision": "deny"}, nil)
	waiting("1")
	if shown("second.txt") {
		b.Error("a call has taken the place of one that another person has decided")
	}
	b.has("no longer waits")
	b.press("j")
	b.has("second.txt")
	b.press("d")
	b.has("write_file: denied")
	b.has("No call waits for a person.")
	s.submit("", "third", "s", writes("third.txt"))
	b.has("third.txt")
}

// TestNamesShowWhatTheyHide: a name or a rule with characters that a screen does not show, or that turn the text around
// them, has marks in their place, as dispatcher approve has.
func TestNamesShowWhatTheyHide(t *testing.T) {
	s := start(t)
	s.submit("", "b\u200bone", "s\u2066", writes("a\u202etxt.exe"))
	b := open(t, s.url)
	b.visit("#/approvals")
	b.has("For the session")
	for what, want := range map[string]string{"label code": "a⟨U+202E", ".facts": "s⟨U+2066", ".asks a": "b⟨U+200B"} {
		if got := strings.Join(b.words(what), " "); !strings.Contains(got, want) {
			b.Errorf("%s has no %q: %q", what, want, got)
		}
	}
	b.visit("#/batches")
	b.has("b⟨U+200B⟩one")
	b.visit("#/batch/default/" + url.PathEscape("b\u200bone"))
	b.has("Batch b⟨U+200B⟩one")
}

// TestAnEditKeepsNumbers: an input that is edited keeps the digits of numbers that JavaScript cannot hold.
func TestAnEditKeepsNumbers(t *testing.T) {
	const number = "9007199254740993"
	s := start(t)
	type in struct {
		Account int64  `json:"account"`
		Note    string `json:"note"`
	}
	pay, err := tool.New(tool.Typed[in, string]{
		Declaration: tool.Declaration{Name: "pay", Description: "Pays.",
			Class: tool.ClassRule{Static: toolyard.WriteExclusive}},
		Run: func(_ context.Context, _ tool.Env, i in) (string, error) {
			return fmt.Sprint(i.Account, " ", i.Note), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.offer("payers", pay)
	s.submit("", "big", "s", call{"id": "c", "tool": "pay", "input": call{"account": json.Number(number),
		"note": "one"}})
	b := open(t, s.url)
	b.visit("#/approvals")
	b.has("account")
	b.press("e")
	b.until("the input is there", `document.querySelector("textarea")`)
	text := value[string](b, `document.querySelector("textarea").value`)
	if !strings.Contains(text, number) {
		b.Errorf("the input to edit is %s", text)
	}
	b.fill("textarea", strings.ReplaceAll(strings.Replace(text, "one", "two", 1), "\n", " "))
	b.button("Allow with this input")
	b.has("pay: allowed")
	var view struct{ Results []struct{ Output string } }
	s.ask("", http.MethodGet, "/v1/batches/big?wait=60", nil, &view)
	if len(view.Results) != 1 || view.Results[0].Output != number+" two" {
		b.Errorf("what was allowed has run as %+v", view.Results)
	}

	b.visit("#/tools?agent=default&tool=pay")
	b.has("Run one call")
	b.fill("textarea[name=note]", "three")
	b.fill("input[name=account]", number)
	b.button("Run")
	b.until("it ran", `document.querySelector("form a[href*=batch]")`)
	id := value[string](b, `document.querySelector("form a[href*=batch]").innerText.replace("Batch ", "")`)
	var look struct{ Input json.RawMessage }
	s.ask("", http.MethodGet, "/v1/batches/"+id+"/calls/0", nil, &look)
	if !strings.Contains(string(look.Input), number) {
		b.Errorf("the form has run %s", look.Input)
	}
}

// TestCommandsOfAHostileID: the id of a batch is no flag of the commands that its page offers: a flag could send an
// operator's token to another server.
func TestCommandsOfAHostileID(t *testing.T) {
	var asked atomic.Bool
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Store(true)
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(evil.Close)
	s := start(t)
	id := "--server=" + evil.URL
	s.submit("", id, "s", call{"id": "c", "tool": "glob", "input": call{"pattern": "*"}})
	b := open(t, s.url)
	b.visit("#/batch/default/" + url.PathEscape(id))
	b.has("As commands")
	b.script(`document.querySelectorAll("details").forEach(d => d.open = true)`)
	commands := b.words(".copy code")
	if len(commands) != 3 {
		t.Fatalf("the commands are %q", commands)
	}
	for _, command := range commands[:2] {
		cmd := exec.Command("sh", "-c", command)
		cmd.Env = []string{"PATH=" + filepath.Dir(s.bin) + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
	if asked.Load() {
		t.Errorf("%q ask another server", commands)
	}
}

// TestABrokenAddress: an address that is none leaves a page, and what leads to others.
func TestABrokenAddress(t *testing.T) {
	s := start(t)
	b := open(t, s.url)
	b.visit("#/batch/%E0%A4%A/x")
	b.until("the frame is there", `document.querySelector("header nav")`)
	b.has("Not found")
	for _, c := range b.complaints.take() {
		b.Errorf("the browser says: %s", c)
	}
}
