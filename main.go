// Command witan is a federation relay, mirror and archive witness for rooms of the Agent Discourse Protocol.
package main

import (
	"os"

	"github.com/witan-adp/witan/internal/cli"
)

func main() { os.Exit(cli.Main()) }
