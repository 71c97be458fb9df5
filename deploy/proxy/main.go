// Command proxy is Caddy, at the version that go.mod pins: the one address in front of all dispatchers of
// deploy/compose.yaml. Its configuration is deploy/Caddyfile.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

func main() { caddycmd.Main() }
