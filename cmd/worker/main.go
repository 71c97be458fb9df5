// Command worker runs the tool calls that dispatchers hand out.
package main

import (
	"os"

	"github.com/toolyard/toolyard/cmd/internal/cli"
	"github.com/toolyard/toolyard/cmd/internal/workercmd"
)

func main() {
	os.Exit(cli.Main(workercmd.Command(os.Stdout, os.Stderr), os.Args[1:], os.Stderr))
}
