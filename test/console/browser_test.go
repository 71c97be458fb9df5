package console

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/toolyard/toolyard/internal/testenv/must"
)

var screenshots = flag.Bool("screenshots", false, "make the pictures of docs/console and docs/terminal anew")

const (
	// patience bounds how long a page takes to show something, on a machine that has much else to do.
	patience = 60 * time.Second
	// maxPicture is how long the file of a screenshot may be.
	maxPicture = 150 << 10
)

// axe is axe-core, which finds what is not accessible in a page.
//
//go:embed testdata/axe.min.js
var axe string

// tab is a page of a browser.
type tab struct {
	*testing.T
	ctx context.Context
	url string
	// complaints are what the browser says of a page: errors of scripts, and what its policy refuses.
	complaints *complaints
}

type complaints struct {
	mu  sync.Mutex
	all []string
}

func (c *complaints) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, what)
}

func (c *complaints) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.all
	c.all = nil
	return all
}

// open opens a tab in a browser that nobody has used before.
func open(t *testing.T, url string) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, // root has no other
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(patience))
	ctx, stop := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(stop)
	ctx, shut := chromedp.NewContext(ctx)
	t.Cleanup(shut)
	b := &tab{T: t, ctx: ctx, url: url, complaints: &complaints{}}
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start a browser (apt-get install chromium): %v", err)
	}
	said := chromedp.Console(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for m, err := range said {
			if err != nil {
				return // the browser has ended
			}
			// a request that fails is part of many tests, and the page shows what it says
			if m.IsException() || m.Type == chromedp.ConsoleError && m.Source != "network" {
				b.complaints.add(m.String())
			}
		}
	}()
	t.Cleanup(func() {
		shut()
		<-done
	})
	b.wide()
	return b
}

// run does something in the page.
func (b *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.Fatalf("%v; the page shows:\n%s", err, b.shows())
	}
}

// shows is the text of the page.
func (b *tab) shows() string {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// as is the same tab in another test.
func (b *tab) as(t *testing.T) *tab {
	other := *b
	other.T = t
	return &other
}

// size sets how much the page has of a screen.
func (b *tab) size(width, height int64) {
	b.Helper()
	b.run(chromedp.EmulateViewport(width, height))
}

func (b *tab) wide()   { b.Helper(); b.size(1280, 800) }
func (b *tab) narrow() { b.Helper(); b.size(390, 800) }

// dark has the page in dark or light colours.
func (b *tab) dark(on bool) {
	b.Helper()
	scheme := "light"
	if on {
		scheme = "dark"
	}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme},
			{Name: "prefers-reduced-motion", Value: "reduce"}},
	}); err != nil {
		b.Fatal(err)
	}
}

// visit goes to a page of the console.
func (b *tab) visit(hash string) {
	b.Helper()
	b.run(chromedp.Navigate(b.url + "/" + hash))
}

// until waits until an expression of JavaScript is true. It asks from outside: the page's policy forbids it to compile
// what the library would have it ask itself.
func (b *tab) until(what, expression string) {
	b.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for began := time.Now(); ; <-again.C {
		ctx, cancel := context.WithTimeout(b.ctx, patience)
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		cancel()
		switch {
		case err == nil && ok:
			return
		case time.Since(began) > patience:
			b.Fatalf("%s does not come (%v); the page shows:\n%s", what, err, b.shows())
		}
	}
}

// has waits until the page shows a text.
func (b *tab) has(text string) {
	b.Helper()
	quoted := must.JSON(b, text)
	b.until(strconv.Quote(text), fmt.Sprintf(`document.body.innerText.includes(%s)`, quoted))
}

func (b *tab) click(selector string) {
	b.Helper()
	b.run(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// button clicks the button that begins with a text.
func (b *tab) button(text string) {
	b.Helper()
	path := fmt.Sprintf(`//button[starts-with(normalize-space(.), %q) and not(@disabled)]`, text)
	b.run(chromedp.Click(chromedp.Search(path), chromedp.NodeVisible))
}

// fill writes a text into a field.
func (b *tab) fill(selector, text string) {
	b.Helper()
	b.run(chromedp.WaitVisible(chromedp.CSS(selector)))
	b.script(fmt.Sprintf(`document.querySelector(%q).focus(); document.querySelector(%q).select()`, selector, selector))
	b.run(chromedp.KeyEvent(kb.Backspace + text))
}

// press presses keys that no field gets.
func (b *tab) press(keys string) {
	b.Helper()
	b.script(`document.activeElement?.blur()`)
	b.run(chromedp.KeyEvent(keys))
}

// value is that of an expression of JavaScript.
func value[T any](b *tab, expression string) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	out, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.Fatalf("%s: %v; the page shows:\n%s", shorten(expression), err, b.shows())
	}
	return out
}

func shorten(s string) string { return s[:min(len(s), 200)] }

// script runs statements of JavaScript.
func (b *tab) script(statements string) {
	b.Helper()
	value[bool](b, "(() => {"+statements+"; return true})()")
}

// violation is what axe-core finds.
type violation struct {
	ID    string `json:"id"`
	Help  string `json:"help"`
	Nodes []struct {
		HTML    string `json:"html"`
		Summary string `json:"failureSummary"`
	} `json:"nodes"`
}

// accessible checks the page as it is, in both colours and on a narrow screen too. It shows nothing wrong in the
// browser's own words either.
func (b *tab) accessible(where string) {
	b.Helper()
	if !value[bool](b, `typeof axe === "object"`) {
		value[bool](b, axe+"\ntrue")
	}
	// Without rules all are checked; with them, those that the colours and the width of the screen can break.
	check := func(how string, rules ...string) {
		b.Helper()
		only := ""
		if len(rules) > 0 {
			only = fmt.Sprintf(`, runOnly: ["%s"]`, strings.Join(rules, `", "`))
		}
		for _, v := range value[[]violation](b, fmt.Sprintf(
			`axe.run(document, {resultTypes: ["violations"]%s}).then(r => r.violations)`, only)) {
			for _, n := range v.Nodes {
				b.Errorf("%s, %s: %s (%s): %s\n%s", where, how, v.Help, v.ID, n.HTML, n.Summary)
			}
		}
	}
	check("light")
	b.dark(true)
	check("dark", "color-contrast")
	b.narrow()
	if over := value[int](b, `document.documentElement.scrollWidth - document.documentElement.clientWidth`); over > 0 {
		b.Errorf("%s: on a narrow screen the page is %d pixels too wide", where, over)
	}
	check("narrow", "color-contrast", "scrollable-region-focusable", "target-size")
	b.dark(false)
	b.wide()
	for _, c := range b.complaints.take() {
		b.Errorf("%s: the browser says: %s", where, c)
	}
}

// picture makes a screenshot for docs/console.md.
func (b *tab) picture(name string) {
	b.Helper()
	b.shoot(filepath.Join("console", name), page.CaptureScreenshotParams{})
}

// shoot makes a picture below docs.
func (b *tab) shoot(name string, what page.CaptureScreenshotParams) {
	b.Helper()
	if !*screenshots {
		return
	}
	quality := int64(80)
	what.Format, what.Quality = page.CaptureScreenshotFormatWebp, &quality
	shot, err := chromedp.Call(b.ctx, page.CaptureScreenshot, what)
	must.OK(b, err)
	data := shot.Data
	if len(data) > maxPicture {
		b.Errorf("the picture %s has %d bytes; at most %d may be", name, len(data), maxPicture)
	}
	file := filepath.Join("..", "..", "docs", name+".webp")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, data, 0o644)); err != nil {
		b.Error(err)
	}
}

// words are the texts of the elements that a selector finds.
func (b *tab) words(selector string) []string {
	b.Helper()
	return strings.Split(value[string](b, fmt.Sprintf(
		`[...document.querySelectorAll(%q)].map(e => e.innerText.replace(/\s+/g, " ").trim()).join("\n")`, selector)), "\n")
}
