package worker

import (
	"github.com/toolyard/toolyard/internal/broker"
	"github.com/toolyard/toolyard/internal/pipeline"
	"github.com/toolyard/toolyard/internal/shell"
)

// newPipe makes a pipeline of a configuration. dirs are the directories of the workspaces.
func (w *Worker) newPipe(cfg *Config, dirs []string) *pipeline.Pipeline {
	pipe := &pipeline.Pipeline{
		Tools: w.tools, Permission: Permission{Rules: cfg.Rules, Mode: cfg.Mode, Dirs: dirs, Shells: cfg.Shells},
		Breakers: w.breakers,
		Cache:    &pipeline.Cache{}, // what is kept was made under the rules of its pipeline
		Blobs:    blobs{w.b}, Classify: shell.Judge, Isolation: cfg.Isolation, Unsandboxed: cfg.Unsandboxed,
		Worker: cfg.ID,
		Redact: cfg.Redact, Unfinished: cfg.Unfinished, Scan: cfg.Scan, Fence: cfg.Fence, Tokens: cfg.Tokens,
		StopGrace: broker.StopGrace(w.b.Settings().CallAckWait),
		Schemas:   &w.schemas, Leaks: &w.leaked,
	}
	if cfg.Hooks != nil {
		pipe.Hooks = cfg.Hooks
		// Hooks have their own limits, and storing the result keeps its time beside them.
		pipe.FinishTimeout = pipeline.DefaultFinishTimeout + cfg.Hooks.PostTime()
	}
	return pipe
}
