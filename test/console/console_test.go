package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

// many is how many calls the longest batch has.
const many = 10_000

// TestConsole goes through the pages as an operator and as an agent.
func TestConsole(t *testing.T) {
	s := start(t, "--token-file", tokenFile(t))
	read := call{"id": "call-1", "tool": "read_file", "input": call{"file_path": "notes.txt"}}
	s.submit(agent, "turn-1", "morning", read, call{"id": "call-2", "tool": "glob", "input": call{"pattern": "*"}},
		call{"id": "call-3", "tool": "no_such_tool", "input": call{}})
	s.submit(other, "turn-1", "evening", read)
	s.submit(agent, "turn-2", "morning", read,
		call{"id": "call-2", "tool": "edit_file", "input": call{"file_path": "notes.txt", "old_string": "two\n",
			"new_string": "two\u200b\n2.5\n"}},
		call{"id": "call-3", "tool": "write_file", "input": call{"file_path": "new.txt", "content": "new\n"}},
		call{"id": "call-4", "tool": "write_file", "input": call{"file_path": "other.txt", "content": "other\n"}})
	b := open(t, s.url)
	for _, part := range []struct {
		name string
		test func(*system, *tab)
	}{
		{"sign in", signIn}, {"batches", batches}, {"a batch", oneBatch}, {"a rerun", rerun},
		{"approvals", approvals},
		{"a call that runs", aRunningCall}, {"a long batch", longBatch}, {"tools", tools}, {"operations", operations},
		{"a report", aReport}, {"an agent", anAgent},
	} {
		if !t.Run(part.name, func(t *testing.T) {
			own := *s
			own.T = t
			part.test(&own, b.as(t))
		}) {
			t.Fatal("the parts after it stand on it")
		}
	}
}

func signIn(s *system, b *tab) {
	b.dark(false)
	b.visit("")
	b.has("Sign in")
	b.accessible("signing in")
	b.picture("sign-in")
	b.fill("input[name=token]", "wrong")
	b.button("Sign in")
	b.has("the token is none of this server's")
	b.fill("input[name=token]", operator)
	b.button("Sign in")
	b.has("operator (olga)")
	if seen := value[string](b, `document.cookie + JSON.stringify(localStorage)`); strings.Contains(seen, operator) {
		b.Errorf("a script reads the token: %s", seen)
	}
	if got := value[int](b, `fetch("/v1/me").then(r => r.status)`); got != http.StatusUnauthorized {
		b.Errorf("the cookie alone: status %d", got)
	}
	b.visit("#/batches") // the session outlives the page
	b.has("operator (olga)")
}

func batches(s *system, b *tab) {
	b.has("turn-2")
	b.accessible("batches")
	b.picture("batches")
	rows := func() []string { return b.words("tbody tr") }
	if all := rows(); len(all) != 3 || !strings.Contains(all[0], "waiting") ||
		!strings.Contains(all[2], "unknown_tool") {
		b.Errorf("the batches are %q", all)
	}
	for field, c := range map[string]struct{ text, one string }{
		"agent": {"agent-2", "evening"}, "text": {"EVEN", "evening"}, "code": {"error", "no_such_tool"},
		"tool": {"edit_file", "turn-2"},
	} {
		b.fill(fmt.Sprintf("input[name=%s]", field), c.text)
		b.press("\r")
		b.click("form button")
		b.until("one batch is left", `document.querySelectorAll("tbody tr").length === 1`)
		if all := rows(); !strings.Contains(all[0], c.one) {
			b.Errorf("%s %s finds %q", field, c.text, all)
		}
		b.visit("#/batches")
		b.until("all are there", `document.querySelectorAll("tbody tr").length === 3`)
	}
	s.submit(agent, "turn-3", "morning", call{"id": "c", "tool": "glob", "input": call{"pattern": "*"}})
	b.has("turn-3") // by itself

	// Reading logs may take seconds: what the index has is shown before.
	b.script(`window.real = window.fetch; window.read = new Promise(done => window.done = done);
		window.fetch = async (path, init) => {
			if (path.startsWith("/v1/search")) await window.read;
			return window.real(path, init);
		}`)
	b.script(`location.hash = "#/batches?agent=agent-2"`)
	b.until("the batch of the other agent is there", `document.querySelectorAll("tbody tr").length === 1`)
	if all := rows(); !strings.Contains(all[0], "evening") || !strings.Contains(all[0], "…") {
		b.Errorf("before the logs are read the batches are %q", all)
	}
	b.script(`window.done(); window.fetch = window.real`)
	b.has("read_file")
	b.visit("#/batches")
}

func oneBatch(s *system, b *tab) {
	b.visit("#/batch/agent-1/turn-2")
	b.until("the calls are there", `document.querySelectorAll("[role=option]").length > 4`)
	b.script(`[...document.querySelectorAll("[role=option]")].find(e => e.innerText.includes("edit_file")).click()`)
	b.has("Call 1: edit_file")
	b.has("U+200B")
	b.picture("batch")
	b.script(`document.querySelectorAll("details").forEach(d => d.open = true)`)
	b.accessible("a batch")
	at := func() string { return value[string](b, `document.querySelector(".travel output").innerText`) }
	now := at()
	b.script(`const s = document.querySelector("input[type=range]"); s.value = "1";
		s.dispatchEvent(new Event("input", {bubbles: true}))`)
	b.until("the first event is shown", `document.querySelector(".travel output").innerText.startsWith("1 of")`)
	b.has("submitted: 4 calls")
	if open := b.words("[role=option] .status"); slices.ContainsFunc(open, func(s string) bool {
		return !strings.Contains(s, "unplanned")
	}) {
		b.Errorf("at the submission the calls are %q", open)
	}
	b.button("Forward")
	b.has("planned by")
	b.button("Now")
	b.until("the last event is shown again", fmt.Sprintf(`document.querySelector(".travel output").innerText === %q`,
		now))
	b.run(chromedp.Focus(chromedp.CSS(".list")), chromedp.KeyEvent(kb.End))
	b.has("Call 3: write_file")
	if commands := b.words(".copy code"); len(commands) > 0 && !strings.Contains(commands[0],
		"dispatcher replay --server "+s.url+" --agent agent-1 turn-2") {
		b.Errorf("the commands are %q", commands)
	}
}

// rerun runs a batch again in a workspace that has changed.
func rerun(s *system, b *tab) {
	must.OK(b, os.WriteFile(filepath.Join(s.workspace, "since.txt"), []byte("x\n"), 0o600))
	b.visit("#/batch/agent-1/turn-3")
	b.has("1 of 1 finished")
	b.script(`[...document.querySelectorAll("summary")].find(e => e.innerText === "Run again and compare").click()`)
	b.button("Run its calls again")
	b.has("1 of 1 results are different.")
	b.accessible("a rerun")
	if rows := b.words("table tr"); !slices.ContainsFunc(rows, func(s string) bool {
		return strings.Contains(s, "output, line 1")
	}) {
		b.Errorf("the differences are %q", rows)
	}
	b.fill("input[name=other]", "turn-3")
	b.button("Compare")
	b.has("of 1 results none is different.")
	b.visit("#/batch/agent-1/turn-2")
	b.has("Run again and compare")
	if !value[bool](b, `[...document.querySelectorAll("button")].find(e =>
		e.textContent === "Run its calls again").disabled`) {
		b.Error("a batch that is not over can be run again")
	}
}

func approvals(s *system, b *tab) {
	s.submit(other, "asks", "evening", call{"id": "c", "tool": "write_file", "input": call{"file_path": "no.txt",
		"content": "no\n"}})
	b.visit("#/approvals")
	b.until("the title says how many wait", `document.title.startsWith("(2) Approvals")`)

	// By the keyboard: the one behind, the first again, and no.
	chosen := func(tool string) {
		b.Helper()
		b.until(tool+" is chosen", fmt.Sprintf(`document.querySelector(".panel h2")?.innerText.startsWith(%q)`, tool))
	}
	chosen("write_file")
	b.press("j")
	chosen("edit_file")
	b.press("k")
	chosen("write_file")
	b.press("d")
	b.has("write_file: denied")
	b.until("the title says that one is left", `document.title.startsWith("(1) Approvals")`)
	chosen("edit_file")
	b.has("What it would change")
	if lines := b.words(".lines .put"); !slices.ContainsFunc(lines, func(s string) bool {
		return strings.Contains(s, "U+200B")
	}) {
		b.Errorf("the comparison adds %q", lines)
	}
	b.accessible("approvals")
	b.picture("approvals")
	content := func(name string) string {
		data := must.Read(b, filepath.Join(s.workspace, name))
		return string(data)
	}

	// With another input, which is checked first.
	b.press("e")
	b.fill("textarea", "{")
	b.until("half an input cannot be allowed", `document.querySelector("button.primary").disabled`)
	input := func(newText string) string {
		text, err := json.Marshal(map[string]string{"file_path": "notes.txt", "old_string": "two\n",
			"new_string": newText})
		must.OK(b, err)
		return string(text)
	}
	b.has("JSON")
	b.fill("textarea", "[1]")
	b.has("An input is an object.")
	b.until("a list cannot be allowed", `document.querySelector("button.primary").disabled`)
	warned := func(want ...string) {
		b.Helper()
		b.until(fmt.Sprintf("the warnings %q", want), fmt.Sprintf(
			`[...document.querySelectorAll("#edit-says li")].map(e => e.innerText).join("|") === %q`,
			strings.Join(want, "|")))
	}
	b.fill("textarea", `{"file_path":7,"old_string":"two\n","new_string":"2"}`)
	warned("file_path: expected string, got 7")
	b.accessible("an edit with a warning")
	b.fill("textarea", strings.Replace(input("2\n"), "file_path", "no_path", 1))
	warned("file_path: is required and missing", "no_path: unknown field")
	b.button("Allow with this input") // the server is the judge
	b.until("it says so", `document.querySelector("[role=alert]")?.innerText.includes("no_path")`)
	b.fill("textarea", input("2\n"))
	b.has("It fits the schema.")
	b.button("Allow with this input")
	b.has("edit_file: allowed")

	// By the keyboard, and for the session.
	b.has("new.txt")
	if got := content("notes.txt"); got != "one\n2\nthree\n" {
		b.Errorf("the edit left %q", got)
	}
	b.has("For the session")
	b.click("input[type=checkbox]")
	b.until("it was read to the end", `!document.querySelector("button.primary").disabled`)
	b.press("a")
	b.has("write_file: allowed")
	var session struct {
		Remembered []string `json:"remembered"`
	}
	if s.ask(agent, http.MethodGet, "/v1/sessions/morning", nil, &session); !slices.Equal(session.Remembered,
		[]string{"write_file(./new.txt)"}) {
		b.Errorf("the session remembers %q", session.Remembered)
	}

	b.has("other.txt")
	b.fill("input[maxlength]", "not this one")
	b.button("Deny")
	b.has("write_file: denied")
	b.has("No call waits for a person.")
	b.until("the title says that none waits", `document.title.startsWith("Approvals")`)
	if got := content("new.txt"); got != "new\n" {
		b.Errorf("the write left %q", got)
	}
	var view struct {
		Results []struct{ Code, Error string }
	}
	s.ask(agent, http.MethodGet, "/v1/batches/turn-2?wait=60", nil, &view)
	if len(view.Results) != 4 || view.Results[3].Code != "approval_rejected" ||
		!strings.Contains(view.Results[3].Error, "not this one") {
		b.Errorf("the results are %+v", view.Results)
	}
}

// aRunningCall follows a call with its progress, until it ends. Meanwhile it holds its workspace, and another batch
// waits.
func aRunningCall(s *system, b *tab) {
	gate := make(chan struct{})
	s.talker(gate)
	s.begin(agent, "talk", "noon", nil, call{"id": "c1", "tool": "talk", "input": call{}})
	b.visit("#/batch/agent-1/talk?call=0")
	b.has("half of it 50 %")
	b.has("a line of talk")
	b.until("the list has the progress too", `document.querySelector("[role=option] progress")?.value === 0.5`)
	b.accessible("a call that runs")
	s.begin(other, "behind", "noon", nil, call{"id": "c1", "tool": "read_file",
		"input": call{"file_path": "notes.txt"}})
	b.visit("#/workspaces")
	b.until("one holds the workspace, and one waits", `document.querySelectorAll("tbody tr").length === 2`)
	s.begin(agent, "beside", "noon-2", nil, call{"id": "c1", "tool": "read_file",
		"input": call{"file_path": "notes.txt"}})
	b.until("one more waits", `document.querySelectorAll("tbody tr").length === 3`)
	s.begin(agent, "last", "noon-3", nil, call{"id": "c1", "tool": "talk", "input": call{}})
	b.until("another one waits", `document.querySelectorAll("tbody tr").length === 4`)
	s.begin(agent, "named", "noon-4", map[string]any{"named_locks": true}, call{"id": "c1", "tool": "read_file",
		"input": call{"file_path": "notes.txt"}})
	b.until("one waits for a name", `document.querySelectorAll("tbody tr").length === 5`)
	drawn := []string{"▶ holds, exclusive agent-1/talk", "… waits, shared agent-2/behind agent-1/beside",
		"… waits, exclusive agent-1/last", "… waits, named agent-1/named"}
	if got := b.words(".queued li"); !slices.Equal(got, drawn) {
		b.Errorf("the queue is drawn as %q, want %q", got, drawn)
	}
	if all := b.words("tbody tr"); !strings.Contains(all[0], "holds exclusive agent-1 talk") ||
		!strings.Contains(all[1], "waits shared agent-2 behind") {
		b.Errorf("the tickets are %q", all)
	}
	b.accessible("workspaces")
	b.picture("workspaces")
	b.visit("#/batch/agent-1/talk?call=0")
	b.has("a line of talk")
	close(gate)
	b.has("✓ completed") // by itself
	b.has("Output")
	b.visit("#/workspaces")
	b.has("No batch holds or waits for a workspace.")
}

// longBatch follows a batch with many calls while it runs, and cancels it: only what is seen of it is in the page.
func longBatch(s *system, b *tab) {
	calls := make([]call, many)
	for i := range calls {
		calls[i] = call{"id": fmt.Sprintf("call-%d", i), "tool": "read_file", "input": call{"file_path": "notes.txt"}}
	}
	s.begin(agent, "long", "night", map[string]any{"max_concurrency": 1}, calls...)
	b.visit("#/batch/agent-1/long")
	rows := `document.querySelectorAll("[role=option]").length`
	b.until("calls end", `[...document.querySelectorAll("[role=option]")].some(e => e.innerText.includes("finished"))`)
	if n := value[int](b, rows); n == 0 || n > 100 {
		b.Errorf("the page has %d rows", n)
	}
	b.accessible("a batch that runs")
	b.button("Cancel the batch")
	b.has("⊘ canceled")
	b.has(fmt.Sprintf("%d of %d finished", many, many))
	b.script(`document.querySelector(".list").scrollTop = 1e9`)
	b.until("the last call is there", fmt.Sprintf(
		`[...document.querySelectorAll("[role=option]")].some(e => e.innerText.startsWith("%d"))`, many-1))
	if n := value[int](b, rows); n > 100 {
		b.Errorf("at the end the page has %d rows", n)
	}
	if left := b.words("[role=option] .status"); slices.ContainsFunc(left, func(s string) bool {
		return !strings.Contains(s, "canceled")
	}) {
		b.Errorf("the last calls are %q", left)
	}
	b.accessible("a long batch")
}

// tools runs one call from its form.
func tools(s *system, b *tab) {
	b.visit("#/tools?agent=agent-1&tool=glob")
	b.has("Run one call")
	b.fill("textarea[name=pattern]", "no*.txt")
	b.button("Run")
	b.until("the result is there", `document.querySelector("[aria-label=Result]")?.innerText.includes("notes.txt")`)
	b.accessible("tools")
	b.picture("tools")
	b.visit("#/tools?agent=agent-1&tool=read_file")
	b.fill("textarea[name=file_path]", "nothing.txt")
	b.button("Run")
	b.has("invalid_arguments")

	// A dry run says what would happen, and does nothing.
	b.visit("#/tools?agent=agent-1&tool=write_file")
	b.fill("textarea[name=file_path]", "dry.txt")
	b.fill("textarea[name=content]", "dry\n")
	b.button("Dry run")
	b.has("Dry run: would wait for a person")
	b.until("what would change is shown",
		`document.querySelector("[aria-label='What would happen']")?.innerText.includes("+dry")`)
	b.accessible("a dry run")
	if _, err := os.Stat(filepath.Join(s.workspace, "dry.txt")); !os.IsNotExist(err) {
		b.Errorf("a dry run has written its file: %v", err)
	}
	var waiting struct{ Calls int }
	if s.ask(operator, http.MethodGet, "/v1/waiting", nil, &waiting); waiting.Calls != 0 {
		b.Errorf("%d calls wait for a person because of a dry run", waiting.Calls)
	}
	b.visit("#/tools?agent=agent-1&tool=read_file")
	b.fill("textarea[name=file_path]", "notes.txt")
	b.button("Dry run")
	b.has("Dry run: would run")
	b.fill("textarea[name=file_path]", "../outside.txt")
	b.button("Dry run")
	b.has("Dry run: would end as")
	b.button("Run")
	b.until("the real run stands in its place", `document.querySelector("[aria-label=Result]")`)
}

// operations shows who is there, and the numbers of the system.
func operations(s *system, b *tab) {
	b.visit("#/workers")
	b.until("the worker is there", `document.querySelectorAll("tbody tr").length === 1`)
	b.has("None is open.")
	b.accessible("workers")
	b.picture("workers")
	b.visit("#/dead")
	b.has("There are none.")
	b.accessible("no dead letters")
	s.junk("agent-1", "junk")
	b.until("the dead letter is there, by itself", `document.querySelectorAll("tbody tr").length === 1`)
	if row := b.words("tbody tr")[0]; !strings.Contains(row, "submission agent-1 junk") ||
		!strings.Contains(row, "ty.batch.agent-1.junk") {
		b.Errorf("the dead letter is %q", row)
	}
	b.accessible("dead letters")
	b.picture("dead")
	b.visit("#/system")
	b.has("TY_EVENT")
	b.until("rates are there", `[...document.querySelectorAll(".card")].some(e => e.innerText.includes("/s"))`)
	codes := strings.Join(b.words("tbody tr"), "\n")
	for _, want := range []string{"ok ", "unknown_tool 1", "Calls, in the tool"} {
		if !strings.Contains(codes, want) {
			b.Errorf("the numbers have no %q:\n%s", want, codes)
		}
	}
	b.accessible("the system")
	b.picture("system")
}

// aReport adds up what the parts before it have run.
func aReport(s *system, b *tab) {
	part := func(label string) string {
		return strings.Join(b.words(fmt.Sprintf("[role=region][aria-label=%q] tbody tr", label)), "\n")
	}
	b.visit("#/report")
	b.has("Never called")
	for label, all := range map[string][]string{
		"Tools":  {"read_file 10", "no_such_tool 1 1", "talk 2"},
		"Errors": {"unknown_tool 1 no_such_tool 1", "approval_rejected 2 write_file 2"},
		"Phases": {"permission 2 ", "execute 0 "}, "Waits": {"a worker", "the workspace's ticket", "a person 4 "},
		"Denied": {"by olga 2"}, "Never called": {"bash"},
	} {
		for _, want := range all {
			if got := part(label); !strings.Contains(got, want) {
				b.Errorf("%s has no %q:\n%s", label, want, got)
			}
		}
	}
	rules := "allow:\n  - \"write_file(./new.txt)\" # 1 question"
	if got := value[string](b, `document.querySelector(".copy code")?.innerText`); !strings.Contains(got, rules[7:]) ||
		!strings.HasPrefix(got, rules[:7]) {
		b.Errorf("the rules are %q", got)
	}
	b.has("Asked about")
	b.accessible("a report")
	b.picture("report")

	b.fill("input[name=agent]", "agent-2")
	b.button("Add up")
	b.until("the report is the other agent's", `location.hash.includes("agent=agent-2") &&
		!document.querySelector("[aria-label=Errors]")?.innerText.includes("unknown_tool") &&
		document.querySelector(".cards")`)
	b.script(`const s = document.querySelector("select[name=period]"); s.value = "between";
		s.dispatchEvent(new Event("change", {bubbles: true}))`)
	b.until("the times can be chosen", `document.querySelector("input[name=until]")`)
	b.script(`document.querySelector("input[name=since]").value = "2001-01-01T00:00";
		document.querySelector("input[name=until]").value = "2001-01-02T00:00"`)
	b.button("Add up")
	b.has("No tool was called.")
	b.accessible("a report of nothing")
	b.script(`document.querySelector("input[name=until]").value = "2000-01-02T00:00"`)
	b.button("Add up")
	b.until("the problem is there", `document.querySelector("[role=alert]")?.innerText.includes("since")`)
	b.visit("#/report?since=36h")
	b.until("a period of another length can be asked for",
		`document.querySelector("select[name=period]").value === "36h" && document.querySelector(".cards")`)
}

// anAgent sees its own things alone, and allows nothing.
func anAgent(s *system, b *tab) {
	s.submit(other, "mine", "evening", call{"id": "c", "tool": "write_file", "input": call{"file_path": "mine.txt",
		"content": "mine\n"}})
	b.button("Sign out")
	b.has("Sign in")
	b.fill("input[name=token]", other)
	b.button("Sign in")
	b.has("agent agent-2")
	b.visit("#/batches")
	b.until("its batches are there", `document.querySelectorAll("tbody tr").length === 4`)
	b.visit("#/report")
	b.until("the report is of its batches", `document.querySelector(".card strong")?.innerText === "4"`)
	b.visit("#/batch/agent-1/turn-1")
	b.has("no such agent")
	b.visit("#/approvals")
	b.has("mine.txt")
	b.has("an agent does not allow its own")
	if value[bool](b, `!document.querySelector("button.primary").disabled`) {
		b.Error("an agent may allow its own call")
	}
	b.button("Deny")
	b.has("write_file: denied")
}

// TestWhatToolsSayIsText: markup in names, inputs and outputs is shown, and is no part of a page.
func TestWhatToolsSayIsText(t *testing.T) {
	const markup = `<img src=x onerror="document.title='owned'"><b id="owned">&amp;</b>`
	s := start(t)
	s.write("markup.txt", markup+"\n")
	name := markup
	s.submit("", name, name, call{"id": name, "tool": name, "input": call{name: name}},
		call{"id": "2", "tool": "read_file", "input": call{"file_path": "markup.txt"}})
	b := open(t, s.url)
	for _, page := range []string{"#/batches?text=owned", "#/batch/default/" + url.PathEscape(name),
		"#/batch/default/" + url.PathEscape(name) + "?call=0", "#/batch/default/" + url.PathEscape(name) + "?call=1",
		"#/report", "#/tools?agent=" + url.QueryEscape(markup)} {
		b.visit(page)
		if !strings.HasPrefix(page, "#/tools") {
			b.has(markup)
		}
		if value[bool](b, `!!document.querySelector("#owned, img")`) {
			b.Errorf("%s: markup became a part of the page", page)
		}
	}
	b.has("Tools")
	for _, c := range b.complaints.take() {
		b.Errorf("the browser says: %s", c)
	}
}

// TestRulesToCopyShowAllOfThem: the rules that a report has to be copied have escapes where a screen shows nothing.
func TestRulesToCopyShowAllOfThem(t *testing.T) {
	s := start(t)
	s.submit("", "turn-1", "s", call{"id": "1", "tool": "write_file", "input": call{"file_path": "a\u200bb.txt",
		"content": "x"}})
	var list struct {
		Approvals []struct {
			ID, Remember string
			SHA256       string `json:"input_sha256"`
		}
	}
	s.ask("", http.MethodGet, "/v1/approvals", nil, &list)
	if len(list.Approvals) != 1 || !strings.Contains(list.Approvals[0].Remember, "a\u200bb") {
		t.Fatalf("what waits is %+v", list)
	}
	asked := list.Approvals[0]
	s.ask("", http.MethodPost, "/v1/approvals/"+url.PathEscape(asked.ID), map[string]string{"decision": "allow",
		"input_sha256": asked.SHA256}, nil)
	s.ask("", http.MethodGet, "/v1/batches/turn-1?wait=60", nil, nil)
	b := open(t, s.url)
	b.visit("#/report")
	b.until("the rule is there", `document.querySelector(".copy code")`)
	if got := value[string](b, `document.querySelector(".copy code").textContent`); got !=
		`allow:`+"\n"+`  - "write_file(./a\U0000200Bb.txt)" # 1 question` {
		t.Errorf("the rules are %q", got)
	}
	b.accessible("a report with a rule")
}

// TestWithoutTokens: where the API asks for no token, neither does the console.
func TestWithoutTokens(t *testing.T) {
	s := start(t)
	b := open(t, s.url)
	b.visit("")
	b.has("There are no batches.")
	b.has("operator")
	b.accessible("no batches")
}

// TestBudgetsOfABatch: its page says what is used of the budgets that its session shares.
func TestBudgetsOfABatch(t *testing.T) {
	budgets := must.File(t, "budgets", "budget agent *=calls:5,cost:7,per-hours:1\n")
	s := start(t, "--quota-file", budgets)
	s.write("notes.txt", "one\n")
	s.submit("", "turn-1", "morning", call{"id": "1", "tool": "read_file", "input": call{"file_path": "notes.txt"}},
		call{"id": "2", "tool": "read_file", "input": call{"file_path": "notes.txt"}})
	b := open(t, s.url)
	b.visit("#/batch/default/turn-1")
	b.has("Budget of agent default")
	b.has("2 of 5 calls, 0 of 7 cost used, all of it again")
	b.accessible("a batch with a budget")
}

// TestWhyAWorkerDoesNotIsolate: the page Workers says what a worker lacks that isolates nothing, to operators.
func TestWhyAWorkerDoesNotIsolate(t *testing.T) {
	s := startWith(t, t.TempDir(), "--sandbox", "bwrap", "--token-file", tokenFile(t)) // there is no bwrap
	why := func(token string) string {
		var list struct {
			Workers []struct {
				Isolation string
				Why       string `json:"no_isolation"`
			}
		}
		if s.ask(token, http.MethodGet, "/v1/workers", nil, &list); len(list.Workers) != 1 ||
			list.Workers[0].Isolation != "none" {
			t.Fatalf("the workers are %+v", list)
		}
		return list.Workers[0].Why
	}
	if !strings.Contains(why(operator), "bwrap") {
		t.Errorf("the worker lacks %q", why(operator))
	}
	if why(agent) != "" {
		t.Errorf("an agent is told of a worker's machine: %q", why(agent))
	}
	b := open(t, s.url)
	b.visit("")
	b.fill("input[name=token]", operator)
	b.button("Sign in")
	b.has("operator (olga)")
	b.visit("#/workers")
	b.has("Missing isolation")
	if rows := b.words("[aria-label='Missing isolation'] tbody tr"); len(rows) != 1 ||
		!strings.Contains(rows[0], why(operator)) {
		t.Errorf("the page says %q", rows)
	}
	b.accessible("a worker that cannot isolate")
}
