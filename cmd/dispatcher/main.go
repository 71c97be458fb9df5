// Command dispatcher takes batches of tool calls and has a pool of workers run them.
package main

import (
	"os"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/cmd/internal/dispatchercmd"
)

func main() {
	os.Exit(cli.Main(dispatchercmd.Command(os.Stdin, os.Stdout, os.Stderr), os.Args[1:], os.Stderr))
}
