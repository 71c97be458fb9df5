package builtin

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/tool"
)

type writeFileInput struct {
	FilePath string `json:"file_path"`
	Content  string `json:"content"`
}

func writeFile() (tool.Tool, error) {
	yes, no := true, false
	t, err := define(tool.Declaration{
		Name: "write_file",
		Description: fmt.Sprintf("Writes a text file of the workspace: creates it, with the directories that its "+
			"path needs, or replaces its whole content. "+
			"Readers see the old content or the new, never a part. At most %d MiB. To change a part of a file use "+
			"edit_file.", MaxWriteBytes>>20),
		InputSchema: object(
			text("file_path",
				"The file: a path relative to the workspace's directory, or an absolute path inside it.").
				withExamples("docs/notes.md").required(),
			text("content", "The whole new content of the file.").withExamples("# Notes\n").required(),
		),
		Class:          tool.ClassRule{Static: toolyard.WriteExclusive},
		Destructive:    &yes, // the old content is gone
		Idempotent:     &no,  // others may write in between, and a silent second run would undo that
		EditsWorkspace: true,
		Specifier:      tool.Specifier{Path: "file_path"},
		Locks:          []string{tool.FileSpace + ":{file_path}"},

		MaxResultSizeChars: -1, // it is one line
		OutputSchema:       changeSchema,
	}, checkWriteFile, runWriteFile)
	return withDiff(t, err, func(ctx context.Context, w *workspace, in writeFileInput) (change, error) {
		t, err := w.planWrite(in)
		if err != nil {
			return change{}, err
		}
		return w.changeOf(t, w.before(ctx, t), []byte(in.Content)), nil
	})
}

// before is the content that a write replaces, as far as a diff needs it. If it cannot be read, the write continues.
func (w *workspace) before(ctx context.Context, t target) []byte {
	if t.info == nil {
		return nil
	}
	if t.info.Size() > MaxDiffFileBytes {
		return make([]byte, MaxDiffFileBytes+1) // too long for a diff
	}
	data, _, err := w.readAll(ctx, t, MaxDiffFileBytes)
	if err != nil {
		return []byte{0} // not text
	}
	return data
}

// changeOf is the change that a write to a target makes.
func (w *workspace) changeOf(t target, before, after []byte) change {
	return changeOf(w.shownName(t), before, after, t.info == nil)
}

func checkWriteFile(_ context.Context, env tool.Env, in writeFileInput) error {
	w, err := openWorkspace(env)
	if err != nil {
		return err
	}
	defer w.close()
	_, err = w.planWrite(in)
	return err
}

// planWrite determines what a write would replace.
func (w *workspace) planWrite(in writeFileInput) (target, error) {
	if len(in.Content) > MaxWriteBytes {
		return target{}, tool.Invalid("content has %s; a file that is written has at most %d",
			bytesWhole(int64(len(in.Content))), MaxWriteBytes)
	}
	if strings.HasSuffix(in.FilePath, "/") {
		if _, _, err := w.split("file_path", in.FilePath); err != nil {
			return target{}, err
		}
		return target{}, tool.Invalid("file_path %s ends in a slash and so names a directory; give the path of a file",
			show(in.FilePath))
	}
	t, err := w.resolve("file_path", in.FilePath)
	if err != nil {
		return t, err
	}
	if err := w.notThroughALink(t); err != nil || t.info == nil {
		return t, err
	}
	return t, isRegular(t.field, t.written, t.info)
}

func runWriteFile(ctx context.Context, env tool.Env, in writeFileInput) (tool.Output, error) {
	w, err := openWorkspace(env)
	if err != nil {
		return tool.Output{}, err
	}
	defer w.close()
	t, err := w.planWrite(in)
	if err != nil {
		return tool.Output{}, err
	}
	did := w.changeOf(t, w.before(ctx, t), []byte(in.Content))
	// What is replaced must still be a file, or still be missing: a rename would also replace a FIFO or a link.
	same := func() error {
		now, err := w.planWrite(in)
		if err == nil && (now.name != t.name || (now.info == nil) != (t.info == nil)) {
			err = changed(t)
		}
		return err
	}
	if err := w.replace(ctx, env, t, []byte(in.Content), same); err != nil {
		return tool.Output{}, err
	}
	verb := "Created"
	if t.info != nil {
		verb = "Overwrote"
	}
	return did.output(fmt.Sprintf("%s %s (%s).", verb, show(w.shownName(t)), bytesWhole(int64(len(in.Content))))), nil
}

// notThroughALink refuses a write whose path leads into a protected place by a symbolic link. The person or rule that
// allowed the call judged the path, and a link may have been created since. If the path itself names the protected
// place, permission has decided about it; but not beside a command, whose sandbox takes away what comes there
// meanwhile.
func (w *workspace) notThroughALink(t target) error {
	if p, ok := w.held.Protected([]string{t.name}); ok && len(w.locks) > 0 {
		return tool.Violation("%s %s is in %s, which is protected and can't be written under a named lock; make the "+
			"call in a batch without named locks", t.field, show(t.written), show(p.Path))
	}
	names, _, err := w.split(t.field, t.written)
	if err != nil {
		return err
	}
	if written := path.Join(names...); written == t.name {
		return nil
	}
	if p, ok := w.held.Protected([]string{t.name}); ok {
		return tool.Violation("%s %s leads by a symbolic link to %s, which is protected; write to the path itself",
			t.field, show(t.written), show(p.Path))
	}
	return nil
}

// changed is the error of a write whose file was changed by others since it was read. Nothing was written.
func changed(t target) error {
	return &tool.Error{
		Code: toolyard.ExecutionFailed,
		Message: fmt.Sprintf("%s %s was changed by somebody else in the meantime; nothing was written: read it "+
			"again first", t.field, show(t.written)),
		Retryable: true,
	}
}
