package builtin

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

type editFileInput struct {
	FilePath   string `json:"file_path"`
	OldString  string `json:"old_string"`
	NewString  string `json:"new_string"`
	ReplaceAll bool   `json:"replace_all"`
}

func editFile() (tool.Tool, error) {
	yes, no := true, false
	t, err := define(tool.Declaration{
		Name: "edit_file",
		Description: fmt.Sprintf("Replaces text in a file of the workspace. old_string must be exactly what is in "+
			"the file, with its white space and line ends and without "+
			"the line numbers of read_file, and must be there once, unless replace_all is true. Readers see the old "+
			"content or the new, never a part. "+
			"Files up to %d MiB.", MaxWriteBytes>>20),
		InputSchema: object(
			text("file_path",
				"The file: a path relative to the workspace's directory, or an absolute path inside it.").
				withExamples("src/main.go").required(),
			text("old_string",
				"The text to replace, exactly as it is in the file; with enough lines around it to be there only once.").withExamples("timeout := 5 * time.Second").required(),
			text("new_string",
				"The text to put in its place; empty to delete it. It must differ from old_string.").
				withExamples("timeout := 30 * time.Second").required(),
			boolean("replace_all", "Whether to replace every place where old_string is, instead of the only one."),
		),
		Class:          tool.ClassRule{Static: toolyard.WriteExclusive},
		Destructive:    &yes, // the old text is gone
		Idempotent:     &no,  // new_string may contain old_string, and a second run would edit it again
		EditsWorkspace: true,
		Specifier:      tool.Specifier{Path: "file_path"},
		Locks:          []string{tool.FileSpace + ":{file_path}"},

		MaxResultSizeChars: -1, // it is one line
		OutputSchema:       changeSchema,
	}, checkEditFile, runEditFile)
	return withDiff(t, err, func(ctx context.Context, w *workspace, in editFileInput) (change, error) {
		p, err := w.planEdit(ctx, in)
		return w.changeOf(p.target, p.old, []byte(p.content)), err
	})
}

// editPlan is an edit that fits the file as it was read.
type editPlan struct {
	target
	old     []byte // the current content
	content string // the new content
	places  int    // where old_string was
	first   int    // the number of the first line that changes
}

// checkEditFile reads the file, so that an edit that does not fit fails before anybody has to approve it.
func checkEditFile(ctx context.Context, env tool.Env, in editFileInput) error {
	w, err := openWorkspace(env)
	if err != nil {
		return err
	}
	defer w.close()
	_, err = w.planEdit(ctx, in)
	return err
}

func (w *workspace) planEdit(ctx context.Context, in editFileInput) (p editPlan, err error) {
	if p.target, err = w.resolve("file_path", in.FilePath); err != nil {
		return p, err
	}
	if err := w.regular(p.target); err != nil {
		return p, err
	}
	if err := w.notThroughALink(p.target); err != nil {
		return p, err
	}
	switch {
	case in.OldString == "":
		return p, tool.Invalid("old_string is empty; give the text to replace, or use write_file to write a whole file")
	case in.OldString == in.NewString:
		return p, tool.Invalid("old_string and new_string are the same: the edit would change nothing")
	}
	data, info, err := w.readAll(ctx, p.target, MaxWriteBytes)
	if err != nil {
		return p, err
	}
	p.info = info // the file that was read counts, also for the mode
	head := data[:min(len(data), BinaryProbeBytes)]
	if isBinary(head, len(head) == len(data)) {
		return p, notText(p.target, info.Size())
	}
	p.old = data
	old := string(data)
	at := strings.Index(old, in.OldString)
	if at < 0 {
		return p, notFound(w.clean, p.target, old, in.OldString)
	}
	p.first = 1 + strings.Count(old[:at], "\n")
	p.places = 1
	if in.ReplaceAll {
		p.places = strings.Count(old, in.OldString)
	} else if spots, more := occurrences(old, in.OldString); len(spots) > 1 {
		return p, ambiguous(p.target, spots, more)
	}
	if size := len(old) + p.places*(len(in.NewString)-len(in.OldString)); size > MaxWriteBytes {
		return p, tool.Invalid("%s %s would have %s after the edit; a file that is written has at most %d", p.field,
			show(p.written), bytesWhole(int64(size)), MaxWriteBytes)
	}
	p.content = strings.Replace(old, in.OldString, in.NewString, p.places)
	return p, nil
}

// occurrences returns the numbers of the lines where old begins, also of overlapping occurrences, at most
// [MaxShownSpots]; more says that there are others.
func occurrences(text, old string) (lines []int, more bool) {
	number := 1
	for {
		at := strings.Index(text, old)
		if at < 0 {
			return lines, false
		}
		if len(lines) == MaxShownSpots {
			return lines, true
		}
		number += strings.Count(text[:at], "\n")
		lines = append(lines, number)
		if text[at] == '\n' {
			number++
		}
		text = text[at+1:]
	}
}

// ambiguous is the error of an old_string that occurs more than once.
func ambiguous(t target, lines []int, more bool) error {
	var at []string
	for _, n := range lines {
		at = append(at, fmt.Sprint(n))
	}
	times := fmt.Sprintf("%d times", len(lines))
	if more {
		times, at = "more than "+times, append(at, "...")
	}
	return tool.Invalid("old_string is in %s %s (lines %s); give more of the text around the one place, or set "+
		"replace_all to change every one",
		show(t.written), times, strings.Join(at, ", "))
}

func runEditFile(ctx context.Context, env tool.Env, in editFileInput) (tool.Output, error) {
	w, err := openWorkspace(env)
	if err != nil {
		return tool.Output{}, err
	}
	defer w.close()
	p, err := w.planEdit(ctx, in)
	if err != nil {
		return tool.Output{}, err
	}
	if err := w.replace(ctx, env, p.target, []byte(p.content), w.sameAs(ctx, p)); err != nil {
		return tool.Output{}, err
	}
	did := w.changeOf(p.target, p.old, []byte(p.content))
	if p.places == 1 {
		return did.output(fmt.Sprintf("Edited %s at line %d.", show(w.shownName(p.target)), p.first)), nil
	}
	return did.output(fmt.Sprintf("Edited %s in %d places, the first at line %d.", show(w.shownName(p.target)),
		p.places, p.first)), nil
}

// sameAs returns a function that checks whether a file is still the one that an edit was made from, because a rename
// would undo what others have written since. It compares the file's identity, size and time of change, and reads it
// again: two writes within one tick of the clock have the same time, and some programs set it back.
func (w *workspace) sameAs(ctx context.Context, p editPlan) func() error {
	same := func(info fs.FileInfo) bool {
		return os.SameFile(info, p.info) && info.Size() == p.info.Size() && info.ModTime().Equal(p.info.ModTime())
	}
	return func() error {
		now, err := w.resolve(p.field, p.written)
		if err != nil {
			return err
		}
		if now.info == nil || now.name != p.name || !same(now.info) {
			return changed(p.target)
		}
		data, info, err := w.readAll(ctx, now, MaxWriteBytes)
		if err != nil {
			return err
		}
		if !same(info) || !bytes.Equal(data, p.old) {
			return changed(p.target)
		}
		return nil
	}
}
