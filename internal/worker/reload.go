package worker

import (
	"fmt"
	"maps"
	"slices"

	"github.com/toolyard/toolyard/internal/registry"
	"github.com/toolyard/toolyard/tool"
)

// Reload takes other tools, toolsets, rules, mode, credentials and secrets from a configuration, while the worker runs;
// everything else in it is ignored. A toolset of the same value goes on as it is. If the configuration does not hold
// together, all stays as it was. Calls that run keep what they began with. Only one goroutine at a time calls it.
func (w *Worker) Reload(cfg Config) error {
	next := w.cfg
	next.Tools, next.Declared, next.Toolsets, next.Credentials = cfg.Tools, cfg.Declared, cfg.Toolsets, cfg.Credentials
	next.Rules, next.Mode, next.Redact, next.Unfinished = cfg.Rules, cfg.Mode, cfg.Redact, cfg.Unfinished
	if next.Origin = cfg.Origin; next.Origin == "" {
		next.Origin = registry.Builtin
	}
	tools, err := newToolbox(next)
	if err != nil {
		return err
	}
	next.Classes = w.asked
	classes, err := takes(&next)
	if err != nil {
		return err
	}
	for _, c := range classes {
		if !slices.Contains(w.cfg.Classes, c) {
			return fmt.Errorf("with these tools the worker would take calls of class %s too; start it anew", c)
		}
	}
	dirs, err := checkPlaces(&next)
	if err != nil {
		return err
	}
	w.pipe.Store(w.newPipe(&next, dirs))
	w.tools.next.Store(tools)
	w.toolsets.replace(next.Toolsets, w.cfg.DrainGrace)
	w.changed()
	return nil
}

// checkPlaces checks the rules about places against the directories of the workspaces, and returns these.
func checkPlaces(cfg *Config) (dirs []string, err error) {
	dirs = slices.Sorted(maps.Values(cfg.Workspaces))
	declarations := make([]*tool.Declaration, len(cfg.Tools))
	for i := range cfg.Tools {
		declarations[i] = &cfg.Tools[i].Declaration
	}
	return dirs, cfg.Rules.CheckPlaces(dirs, declarations...)
}
