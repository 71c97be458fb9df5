package cli

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/toolyard/toolyard/internal/manifest"
	"github.com/toolyard/toolyard/internal/policy"
	"github.com/toolyard/toolyard/tool"
)

// maxRulesBytes is how long a file of rules may be.
const maxRulesBytes = 1 << 20

// rulesFile is a file of permission rules.
type rulesFile struct {
	Deny  []ruleEntry `yaml:"deny"`
	Ask   []ruleEntry `yaml:"ask"`
	Allow []ruleEntry `yaml:"allow"`
}

// ruleEntry is a rule with examples of what it matches and what it spares.
type ruleEntry struct {
	Rule    string   `yaml:"rule"`
	Matches []string `yaml:"matches"`
	Spares  []string `yaml:"spares"`
}

// readRules adds the rules of a file, whose examples must hold. Whatever is wrong in it is an error: half a file of
// rules is none.
func readRules(path string, rules *policy.Rules, tools []tool.Tool) error {
	data, err := ReadFile("--rules", path, maxRulesBytes)
	if err != nil {
		return err
	}
	var file rulesFile
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := manifest.OnlyDocument(d, &file); err != nil {
		return Usagef("--rules %s: %w", path, err)
	}
	var errs []error
	for _, list := range []struct {
		name    policy.Behavior
		entries []ruleEntry
		to      *[]policy.Rule
	}{{policy.Deny, file.Deny, &rules.Deny}, {policy.Ask, file.Ask, &rules.Ask},
		{policy.Allow, file.Allow, &rules.Allow}} {
		for i, e := range list.entries {
			r, err := policy.ParseRule(e.Rule)
			if err == nil {
				err = checkExamples(r, list.name, policy.Examples{Matches: e.Matches, Spares: e.Spares}, tools)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s[%d]: %w", list.name, i, err))
			}
			*list.to = append(*list.to, r)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Usagef("--rules %s: %w", path, err)
	}
	return nil
}

func checkExamples(r policy.Rule, list policy.Behavior, ex policy.Examples, tools []tool.Tool) error {
	i := slices.IndexFunc(tools, func(t tool.Tool) bool { return r.About(&t.Declaration) })
	switch {
	case i >= 0:
		return r.CheckExamples(&tools[i].Declaration, list, ex)
	case r.Specifier != "":
		return fmt.Errorf("rule %q: there is no tool %q here, so its examples cannot be checked; leave the specifier "+
			"out, or give the rule to the worker that has the tool", r, r.Tool)
	}
	return nil
}
