package dispatchercmd

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/toolyard/toolyard"
	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/internal/broker/natsbroker"
	"github.com/toolyard/toolyard/internal/shell"
)

// The flags that say which system a command is for. The token is not among them: it is a secret.
var (
	serverFlags = []string{"server", "server-ca"}
	brokerFlags = []string{"nats", "creds", "data", "nats-context", "nats-nkey", "nats-ca", "nats-client-cert",
		"nats-client-key"}
)

// goesOn tells a person whose command was interrupted that its batch was not, and what to do about it. If stored is
// false it is not known whether the batch was handed in.
func (f *systemFlags) goesOn(k toolyard.BatchKey, stored bool) string {
	commands := f.cmd.Root().Name()
	if parent := f.cmd.Parent(); parent != nil {
		commands = parent.CommandPath()
	}
	which := ""
	names := brokerFlags
	if f.server != "" {
		names = serverFlags
	}
	for _, name := range names {
		if flag := f.cmd.Flags().Lookup(name); flag != nil && flag.Changed && flag.Value.String() != "" {
			value := flag.Value.String()
			if name == "nats" { // which may have a password; the others are no secrets
				value = natsbroker.ShownURL(value)
			}
			which += " --" + name + " " + shellWord(value)
		}
	}
	if k.Agent != "" {
		which += " --agent " + shellWord(string(k.Agent))
	}
	if strings.HasPrefix(string(k.ID), "-") {
		which += " --"
	}
	which += " " + shellWord(string(k.ID))
	name, goesOn := k.String(), "goes on"
	if k.Agent == "" { // the token says whose it is
		name = string(k.ID)
	}
	if !stored {
		goesOn = "may have been handed in"
	}
	return fmt.Sprintf("batch %s %s; to follow it, or to end it:\n  %s watch%s\n  %[3]s cancel%[4]s\n",
		cli.OneLine(name), goesOn, commands, cli.Printable(which))
}

// plainWord is what a shell takes as one word as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// shellWord is a text as one word of a shell, as it is where it can be.
func shellWord(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return shell.Quote(s)
}
